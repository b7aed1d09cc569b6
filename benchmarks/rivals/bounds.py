"""Bounds that no fair policy is: the measured oracle, and the ceiling that labels allow.

What they answer: what the best choice for each job alone would measure (it ignores later jobs),
and how good a choice can be that sees link labels only. Two sets with the same labelled induced
subgraph are one class to any value that depends on labels; the best such value knows each class's
mean measured bandwidth and takes the best free class, any of its sets being as likely as another.
"""

from __future__ import annotations

from itertools import permutations
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.masks import members, subsets_of_size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from benchmarks.measured import MeasuredMachine
    from benchmarks.rivals.rival import Chooser
    from topology.model import NodeTopology

__all__ = ["LabelCeiling", "label_classes", "measured_oracle"]

LabelKey = tuple[tuple[str, int, str], ...]


def measured_oracle(gbytes_per_s: Mapping[int, float]) -> Chooser:
    """The best measured set for each job alone; the lowest ids on ties, and for one GPU."""

    def choose(free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        del rng, is_sensitive
        return max(
            subsets_of_size(free, size), key=lambda mask: gbytes_per_s.get(mask, 0.0), default=None
        )

    return choose


def _labels(topology: NodeTopology, order: tuple[int, ...]) -> LabelKey:
    return tuple(
        (
            topology.links[a][b].kind.value,
            topology.links[a][b].n_links or 0,
            topology.pcie[a][b].value,
        )
        for i, a in enumerate(order)
        for b in order[:i]
    )


def label_classes(topology: NodeTopology, size: int) -> dict[int, LabelKey]:
    """Map every set of a size to the canonical form of its labelled subgraph.

    The canonical form is the least label matrix over all orders of the set: size! orders of
    C(n, size) sets, meant for sizes up to 5 of 8 GPUs.
    """
    everything = (1 << topology.n_gpus) - 1
    return {
        mask: min(_labels(topology, order) for order in permutations(members(mask)))
        for mask in subsets_of_size(everything, size)
    }


class LabelCeiling:
    """The expected measured bandwidth of the best class of each free set."""

    name = "ceiling that labels allow"

    def __init__(self, machine: MeasuredMachine) -> None:
        self._machine = machine
        self._by_size: dict[int, tuple[dict[int, LabelKey], dict[LabelKey, float]]] = {}

    def _classes(self, size: int) -> tuple[dict[int, LabelKey], dict[LabelKey, float]]:
        known = self._by_size.get(size)
        if known is None:
            of_set = label_classes(self._machine.topology, size)
            groups: dict[LabelKey, list[float]] = {}
            for mask, key in of_set.items():
                groups.setdefault(key, []).append(self._machine.gbytes_per_s[mask])
            known = (of_set, {key: fmean(values) for key, values in groups.items()})
            self._by_size[size] = known
        return known

    def candidates(self, free: int, size: int) -> tuple[int, ...]:
        """Return the free sets of the best class, all equal to a value on labels."""
        of_set, mean = self._classes(size)
        inside = subsets_of_size(free, size)
        best = max((of_set[mask] for mask in inside), key=lambda key: mean[key])
        return tuple(mask for mask in inside if of_set[mask] == best)
