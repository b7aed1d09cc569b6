"""What sets of one machine type are worth, and what other choices would give from the same GPUs.

What it answers: for a machine type and a mask of GPUs its value, the best set inside, what NVIDIA's
best-effort policy would choose in the mean, the best re-placement, the stranded GPUs. Everything is
remembered by the masks it depends on, so that nodes in one state are computed once. It knows no pod
and no node.

The kubelet names available devices in the random order of a Go map, and of partitions that score
the same NVIDIA's policy takes the first in that order. So its value is a mean over orders: all of
them up to `MAX_ALL_ORDERS` GPUs, else `N_ORDERS` that are evenly spaced among all in lexical order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import factorial
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from topology.annotations import Affinity, PlacementPolicy
from topology.audit.figures.best_effort import NvidiaNode, nvidia_pair_scores
from topology.errors import InvalidRequest
from topology.select import MachineTables, Selected, build_machine, near_best_counts, select_set
from topology.value import Limit, gpus_of, mask_index, mask_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from topology.model import NodeTopology

__all__ = ["MachineFigures", "SetWorth", "kubelet_orders"]

MAX_ALL_ORDERS = 6
"""Most GPUs of which all orders are tried: 720."""
N_ORDERS = 101
"""Orders beyond. A prime above every place of an order, so that all places vary. Of the shipped
machines the mean over 101 of 8 GPUs is that over all 40,320 to 0.3 %, but for a machine with a GPU
off its switch fabric, where it is to 6 %."""
_PAIR = 2
_QUAD = 4
_ANY_SET = PlacementPolicy(affinity=Affinity.NONE)
"""Takes a set as it is, also one of mixed models."""


@dataclass(frozen=True, slots=True)
class SetWorth:
    """Predicted GB/s of a set and its share of the empty machine's best, or means of these."""

    gbytes_per_s: float
    share: float


class MachineFigures:
    """The figures of one machine type."""

    def __init__(self, topology: NodeTopology) -> None:
        self.machine = build_machine(topology)
        self._topology = topology
        self._best: dict[tuple[int, int, bool], int] = {}
        self._by_policy: dict[tuple[int, int], SetWorth] = {}
        self._uniform: NDArray[np.float64] | None = None
        self._near_best: dict[int, NDArray[np.int8]] = {}

    @cached_property
    def is_even(self) -> bool:
        """Whether all sets of each size are worth the same; a single GPU's machine is not."""
        machine = self.machine
        if not isinstance(machine, MachineTables):
            return machine.is_even
        sets = mask_index(machine.n_gpus).by_size[_PAIR:]
        return len(sets) > 0 and all(
            bool(machine.is_uniform[masks].all()) and float(np.ptp(machine.value[masks])) == 0.0
            for masks in sets
        )

    @property
    def is_judged(self) -> bool:
        """Whether sets can be compared: above 16 GPUs only where all of a size are equal."""
        return isinstance(self.machine, MachineTables) or self.is_even

    def worth(self, mask: int) -> SetWorth:
        """What a set of two or more GPUs is worth."""
        machine = self.machine
        if isinstance(machine, MachineTables):
            return SetWorth(float(machine.value[mask]), 1 - float(machine.loss[mask]))
        chosen = self._described(mask)
        return SetWorth(chosen.value_gbytes_per_s, 1 - chosen.loss)

    def limit(self, mask: int) -> Limit:
        """What limits a set."""
        machine = self.machine
        if isinstance(machine, MachineTables):
            return Limit(int(machine.limit[mask]))
        return self._described(mask).limit

    def best(self, own: int, free: int) -> int:
        """The set of most value that a container could have in its own and the free GPUs.

        Its own where none is worth more. GPUs of several models only where its own are.
        """
        machine = self.machine
        if not isinstance(machine, MachineTables) or self.is_even:
            return own
        pool, size = own | free, own.bit_count()
        is_mixed = not bool(machine.is_uniform[own])
        value = self._values(machine, is_mixed=is_mixed)
        key = (pool, size, is_mixed)
        if key not in self._best:
            sets = mask_index(machine.n_gpus).by_size[size]
            sets = sets[sets & ~pool == 0]
            self._best[key] = int(sets[value[sets].argmax()])
        best = self._best[key]
        return best if value[best] > value[own] else own

    def best_effort(self, pool: int, size: int) -> SetWorth | None:
        """What NVIDIA's policy gives from a pool of GPUs in the mean; None above 16 GPUs."""
        if self.is_even:
            return self.worth(_lowest(pool, size))
        if not isinstance(self.machine, MachineTables):
            return None
        if (pool, size) not in self._by_policy:
            chosen = [
                mask
                for order in kubelet_orders(gpus_of(pool))
                if (mask := self._policy.allocate(order, size)) is not None
            ]
            worths = {mask: self.worth(mask) for mask in set(chosen)}
            self._by_policy[pool, size] = SetWorth(
                fmean(worths[mask].gbytes_per_s for mask in chosen),
                fmean(worths[mask].share for mask in chosen),
            )
        return self._by_policy[pool, size]

    def n_stranded(self, free: int) -> int:
        """Free GPUs that can form no set of four; none of two where the node has fewer GPUs."""
        n = self.machine.n_gpus
        if n < _PAIR or not free:
            return 0
        size = _QUAD if n >= _QUAD else _PAIR
        counts = self._placeable(size)
        placeable = free.bit_count() // size if counts is None else int(counts[free])
        return 0 if placeable else free.bit_count()

    def _placeable(self, size: int) -> NDArray[np.int8] | None:
        machine = self.machine
        if not isinstance(machine, MachineTables):
            return None
        if size not in self._near_best:
            self._near_best[size] = near_best_counts(machine, size)
        return self._near_best[size]

    @cached_property
    def _policy(self) -> NvidiaNode:
        return NvidiaNode(nvidia_pair_scores(self._topology))

    def _values(self, machine: MachineTables, *, is_mixed: bool) -> NDArray[np.float64]:
        """GB/s of every mask; -inf for sets of several models, unless those are given already."""
        if is_mixed:
            return machine.value
        if self._uniform is None:
            self._uniform = np.where(machine.is_uniform, machine.value, -np.inf)
        return self._uniform

    def _described(self, mask: int) -> Selected:
        """A set of a machine above 16 GPUs, all sets of which are worth the same."""
        chosen = select_set(
            self.machine,
            available=mask,
            must_include=mask,
            size=mask.bit_count(),
            policy=_ANY_SET,
        )
        if isinstance(chosen, Selected):
            return chosen
        raise InvalidRequest(chosen.reason.value)  # pragma: no cover - nothing is required


def kubelet_orders(gpus: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The orders of available GPUs over which a mean is taken.

    >>> list(kubelet_orders((0, 1)))
    [(0, 1), (1, 0)]
    >>> len(set(kubelet_orders(range(8))))
    101
    """
    if len(gpus) <= MAX_ALL_ORDERS:
        yield from permutations(gpus)
        return
    n_all = factorial(len(gpus))
    for k in range(N_ORDERS):
        place, left = (2 * k + 1) * n_all // (2 * N_ORDERS), list(gpus)
        order: list[int] = []
        for n_left in range(len(gpus), 0, -1):
            index, place = divmod(place, factorial(n_left - 1))
            order.append(left.pop(index))
        yield tuple(order)


def _lowest(mask: int, count: int) -> int:
    """The lowest members of a mask."""
    return mask_of(gpus_of(mask)[:count])
