"""The choice of one set inside a part of a large machine: packed, or searched with a bound.

What it answers: which devices of a domain a request of some size takes on a node of more than 16
devices. The method stands in `topology.select.large`, which decides between domains.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from topology.annotations import NicRule, PlacementPolicy
from topology.select.large_machine import (
    LargeMachine,
    one_of_each,
    satisfies_level,
    unmet_condition,
    value_of,
)
from topology.value import MAX_TABLE_GPUS, gpus_of, mask_of

__all__ = ["SearchRequest", "choose_set", "most_sets", "next_set"]

MAX_WORK = 10_000
"""Bound of a request's searches on one machine (`most_sets`)."""
_SET_WORK = 400
"""Work of a rated set beside the cube of its size, which is what a minimum cut costs: most of it is
the packing of rings, whose steps are bounded (`topology.value.set_value`)."""
_LEAST_SETS = 8
"""Sets of up to 16 devices that the searches rate together, and two by each. A larger set takes
milliseconds to rate: one may be all there is time for, and then it is the packing's."""


def most_sets(size: int, n_searches: int = 1) -> int:
    """How many sets of a size each of so many searches rates.

    >>> most_sets(2), most_sets(8), most_sets(16), most_sets(32)
    (24, 10, 8, 1)
    """
    n_sets = MAX_WORK // (size**3 + _SET_WORK)
    if size > MAX_TABLE_GPUS:
        return max(1, n_sets // n_searches)
    return max(2, max(_LEAST_SETS, n_sets) // n_searches)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is looked for: `size` devices, with all of `must_include`, under `policy`.

    The search is one of `n_searches` with equal parts of `MAX_WORK`.
    """

    must_include: int
    size: int
    policy: PlacementPolicy
    n_searches: int = 1


def choose_set(machine: LargeMachine, domain: int, request: SearchRequest) -> int:
    """A set of a domain: packed on an even machine, else the best that the search finds."""
    return _chosen(machine, domain, request)[0]


def next_set(machine: LargeMachine, domain: int, request: SearchRequest) -> int | None:
    """The best other set among those that `choose_set` compared, None where there is none.

    Where it only packs, what it packs without the last device of its set: all sets are equal there.
    """
    return _chosen(machine, domain, request)[1]


@lru_cache(maxsize=1 << 14)
def _chosen(machine: LargeMachine, domain: int, request: SearchRequest) -> tuple[int, int | None]:
    packed = _packed(machine, domain, request)
    if machine.is_even or request.size == 1:
        spare = packed & ~request.must_include
        if not spare or domain.bit_count() <= request.size:
            return packed, None
        return packed, _packed(machine, domain & ~(1 << spare.bit_length() - 1), request)
    near = _near_nic(machine, domain, request)
    search = _Search(machine, domain, request)
    best = search.best(packed, _seeds(machine, domain, near))
    return best, search.best_but(best)


def _packed(machine: LargeMachine, domain: int, request: SearchRequest) -> int:
    near = _near_nic(machine, domain, request)
    held, size = request.must_include, request.size
    if near and not held & machine.near_rdma and held.bit_count() < size:
        held |= _pack(machine.levels, near, 1, held)
    return held | _pack(machine.levels, domain & ~held, size - held.bit_count(), held)


def _near_nic(machine: LargeMachine, domain: int, request: SearchRequest) -> int:
    """The devices near a NIC, where the request wishes or needs one."""
    return domain & machine.near_rdma if request.policy.nic is not NicRule.UNSET else 0


def _seeds(machine: LargeMachine, domain: int, near: int) -> list[int]:
    """The devices of a domain, the most promising first."""
    capacities = machine.capacities
    unit, fabrics = capacities.unit_gbytes_per_s, capacities.fabrics

    def bandwidth(gpu: int) -> float:
        ports = sum(fabric.port_gbytes_per_s[gpu] for fabric in fabrics)
        return ports + unit * sum(capacities.units[gpu][other] for other in gpus_of(domain))

    alike = one_of_each(machine, domain)
    return sorted(gpus_of(alike), key=lambda gpu: (not near >> gpu & 1, -bandwidth(gpu), gpu))


def _pack(levels: tuple[tuple[int, ...], ...], free: int, wanted: int, taken: int) -> int:
    """`wanted` free devices out of as few groups as can be: the groups of `taken` first."""
    if not wanted:
        return 0
    if not levels:
        return mask_of(gpus_of(free)[:wanted])
    groups = [(group, group & free) for group in levels[0] if group & free]
    known = [part for group, part in groups if group & taken]
    new = [part for group, part in groups if not group & taken]
    for parts in (known, known + new):
        whole = [part for part in parts if part.bit_count() >= wanted]
        if whole:
            tightest = min(whole, key=lambda part: (part.bit_count(), part & -part))
            return _pack(levels[1:], tightest, wanted, taken)
    widest = max(known or new, key=lambda part: (part.bit_count(), -(part & -part)))
    rest = _pack(levels, free & ~widest, wanted - widest.bit_count(), taken)
    return widest | rest


class _Search:
    """Grow and swap under a work bound; deterministic."""

    def __init__(self, machine: LargeMachine, domain: int, request: SearchRequest) -> None:
        self._machine = machine
        self._domain = domain
        self._must = request.must_include
        self._size = request.size
        self._policy = request.policy
        self._left = most_sets(request.size, request.n_searches)
        self._rated: dict[int, tuple[bool, bool, bool, float]] = {}

    def best(self, packed: int, seeds: list[int]) -> int:
        """The best set found; `packed` is one of them."""
        found = packed
        for seed in seeds[: self._left // 2]:
            grown = self._grown(self._must | 1 << seed)
            # Of equal sets the packing's own stands, then the one found first.
            if grown.bit_count() == self._size and self._quality(grown) > self._quality(found):
                found = grown
        return self._swapped(found)

    def best_but(self, best: int) -> int | None:
        """The best other set that was rated."""
        return max((mask for mask in self._rated if mask != best), key=self._order, default=None)

    def _order(self, mask: int) -> tuple[tuple[bool, bool, bool, float], tuple[int, ...]]:
        return self._quality(mask), tuple(-gpu for gpu in gpus_of(mask))

    def _quality(self, mask: int) -> tuple[bool, bool, bool, float]:
        """How well a set serves the policy: its conditions, its two wishes, its value."""
        if mask not in self._rated:
            self._left -= 1
            machine, policy = self._machine, self._policy
            self._rated[mask] = (
                unmet_condition(machine, mask, policy) is None,
                satisfies_level(machine, mask, policy.affinity),
                policy.nic is NicRule.UNSET or mask & machine.near_rdma != 0,
                value_of(machine, mask)[0],
            )
        return self._rated[mask]

    def _wider(self, mask: int) -> list[int]:
        """The set with one more device, one that links join to it where there are any."""
        outside = self._domain & ~mask
        joined = 0
        for gpu in gpus_of(mask):
            joined |= self._machine.capacities.adjacency[gpu]
        alike = one_of_each(self._machine, joined & outside or outside)
        return [mask | 1 << gpu for gpu in gpus_of(alike)]

    def _grown(self, mask: int) -> int:
        while mask.bit_count() < self._size:
            members = gpus_of(mask)
            outside = gpus_of(one_of_each(self._machine, self._domain & ~mask))
            mask |= 1 << max(outside, key=lambda gpu: self._nearness(gpu, members))
        return mask

    def _nearness(self, gpu: int, members: tuple[int, ...]) -> tuple[float, int, int]:
        capacities, pcie = self._machine.capacities, self._machine.topology.pcie
        bandwidth = capacities.unit_gbytes_per_s * sum(capacities.units[gpu][m] for m in members)
        for fabric in capacities.fabrics:
            port = fabric.port_gbytes_per_s
            bandwidth += min(port[gpu], sum(port[m] for m in members))
        return bandwidth, -sum(pcie[gpu][m].rank for m in members), -gpu

    def _swapped(self, mask: int) -> int:
        improved = True
        while improved:
            improved = False
            for out in gpus_of(one_of_each(self._machine, mask & ~self._must)):
                options = self._wider(mask & ~(1 << out))[: max(0, self._left)]
                better = max(options, key=self._order, default=mask)
                if self._quality(better) > self._quality(mask):
                    mask, improved = better, True
        return mask
