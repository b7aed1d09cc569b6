"""What an audit of one node has to report, by trying everything; its allocations are given.

Shares one thing with `topology.audit`: the value of a set (`topology.value.set_value`). Sets
are enumerated, NVIDIA's best-effort policy as well (go-gpuallocator 876e7b76,
gpuallocator/besteffort_policy.go), partition by partition. It reads no cluster and must import
nothing of `topology.audit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from math import factorial
from statistics import fmean
from typing import TYPE_CHECKING

from topology.model import (
    FITTED_MESSAGE_BYTES,
    REFERENCE_MESSAGE_BYTES,
    LinkKind,
    PcieLevel,
)
from topology.recordings import load_recording
from topology.value import start_up_cost
from topology.value.machine_graph import machine_graph
from topology.value.set_value import SetValue, set_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["ExpectedNode", "ExpectedSet", "Holder"]

Holder = tuple[str, str]
"""A pod and its container."""
_Set = frozenset[int]
_Block = tuple[int | None, ...]

_NEAR = 0.9
"""Sets of one size whose values differ by less than a tenth count as equal."""
_PCIE_POINTS = {
    PcieLevel.PIX: 50,
    PcieLevel.PXB: 40,
    PcieLevel.PHB: 30,
    PcieLevel.NODE: 20,
    PcieLevel.SYS: 10,
}
_ALL_ORDERS_UP_TO = 6
_N_ORDERS = 101


@dataclass(frozen=True, slots=True)
class ExpectedSet:
    """Figures of one container, GB/s; `best_empty` is the best set of its size."""

    has: float
    could_have: float
    best_effort: float
    best_effort_share: float
    best_empty: float
    limit: str

    @property
    def loss(self) -> float:
        """What it lacks of the best set that it could have, 0..1."""
        return 1 - self.has / self.could_have

    @property
    def is_best(self) -> bool:
        """Whether it counts as equal to that set."""
        return self.loss <= 1 - _NEAR


class ExpectedNode:
    """A node of a recorded machine on which containers have these GPUs, by index."""

    def __init__(self, recording: str, held: Mapping[Holder, Iterable[int]]) -> None:
        self._topology = load_recording(recording)
        self.n_gpus = self._topology.n_gpus
        self.name = f"{self.n_gpus}x {self._topology.gpus[0].model}"
        """What a report calls the machine type."""
        self._graph = machine_graph(self._topology)
        self.held = {holder: frozenset(gpus) for holder, gpus in held.items()}
        self.free = frozenset(range(self.n_gpus)).difference(*self.held.values())
        self.several = {holder: own for holder, own in self.held.items() if len(own) > 1}
        """The containers that are judged: those with two or more GPUs."""
        self._values: dict[_Set, float] = {}
        self._scores = self._pair_scores()

    def worth(self, gpus: Iterable[int]) -> float:
        """GB/s of a set at the message size of reports."""
        key = frozenset(gpus)
        if key not in self._values:
            value = self._set_value(key)
            cost = start_up_cost(value.limit) * FITTED_MESSAGE_BYTES / REFERENCE_MESSAGE_BYTES
            rate = value.value_gbytes_per_s
            self._values[key] = round(rate / (1 + cost * rate), 6)
        return self._values[key]

    def figures(self, holder: Holder) -> ExpectedSet:
        """All of a container but its place after a re-placement."""
        own = self.several[holder]
        pool, size = sorted(own | self.free), len(own)
        chosen = [self.worth(self._prefer(order, size)) for order in _orders(pool)]
        best_empty = self._best(range(self.n_gpus), size)
        return ExpectedSet(
            has=self.worth(own),
            could_have=self._best(pool, size),
            best_effort=fmean(chosen),
            best_effort_share=fmean(one / best_empty for one in chosen),
            best_empty=best_empty,
            limit=self._set_value(own).limit.name.lower(),
        )

    @property
    def n_stranded(self) -> int:
        """Free GPUs, unless some four of them are as good as the machine's best four."""
        best = self._best(range(self.n_gpus), 4)
        near = any(self.worth(four) >= _NEAR * best for four in combinations(sorted(self.free), 4))
        return 0 if near else len(self.free)

    def _set_value(self, gpus: _Set) -> SetValue:
        return set_value(self._graph, gpus)

    def _best(self, pool: Iterable[int], size: int) -> float:
        return max(self.worth(chosen) for chosen in combinations(pool, size))

    def _pair_scores(self) -> dict[_Set, int]:
        """PCIe level and 100 for each NVLink that ends at the other GPU."""
        topology = self._topology
        assert not topology.fabrics, f"{self.name}: links to NVSwitch score differently"
        scores: dict[_Set, int] = {}
        for i, j in combinations(range(self.n_gpus), 2):
            link = topology.links[i][j]
            n_links = (link.n_links or 0) if link.kind is LinkKind.NVLINK else 0
            points = _PCIE_POINTS.get(topology.pcie[i][j], 0)
            scores[frozenset((i, j))] = points + 100 * n_links
        return scores

    def _score(self, block: _Block) -> int:
        return sum(
            self._scores[frozenset((i, j))]
            for i, j in combinations(block, 2)
            if i is not None and j is not None
        )

    def _prefer(self, order: Sequence[int], size: int) -> list[int]:
        """The set that NVIDIA's best-effort policy returns for GPUs named in this order."""
        line: _Block = (*order, *[None] * (-len(order) % size))
        best = max(
            _partitions(line, size, line.count(None)),
            key=lambda partition: sum(map(self._score, partition)),
        )  # the first of equal ones
        whole = [block for block in best if None not in block]
        return [gpu for gpu in max(whole, key=self._score) if gpu is not None]


def _partitions(line: _Block, size: int, n_padding: int) -> Iterator[list[_Block]]:
    """All partitions in the original's order; a set has all of the padding or none of it."""
    if len(line) == size:
        yield [line]
        return
    for others in combinations(range(1, len(line)), size - 1):
        block = (line[0], *(line[i] for i in others))
        if block.count(None) not in {0, n_padding}:
            continue
        left = tuple(one for i, one in enumerate(line) if i not in {0, *others})
        for tail in _partitions(left, size, n_padding):
            yield [block, *tail]


@cache
def _all_orders(n: int) -> list[tuple[int, ...]]:
    return list(permutations(range(n)))


def _orders(pool: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The orders that a mean is over: all, or of more than six GPUs 101 evenly spaced ones."""
    n, n_all = len(pool), factorial(len(pool))
    places: Iterable[int] = range(n_all)
    if n > _ALL_ORDERS_UP_TO:
        places = [(2 * k + 1) * n_all // (2 * _N_ORDERS) for k in range(_N_ORDERS)]
    for place in places:
        yield tuple(pool[i] for i in _all_orders(n)[place])
