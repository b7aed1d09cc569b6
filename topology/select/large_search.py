"""The choice of one set inside a part of a large machine: packed, or searched with a bound.

What it answers: which devices of a domain a request of some size takes on a node of more than 16
devices. The method stands in `topology.select.large`, which decides between domains.
"""

from __future__ import annotations

from functools import lru_cache

from topology.annotations import NicRule, PlacementPolicy
from topology.select.large_machine import LargeMachine, satisfies_level, unmet_condition, value_of
from topology.value import gpus_of, mask_of

__all__ = ["MAX_WORK", "choose_set"]

MAX_WORK = 100_000
"""Bound of one search, in size**3 a rated set: some 195 sets of 8 devices, 24 of 16 (and
as many as the size has devices, above that). The size cubed is what a minimum cut costs."""


@lru_cache(maxsize=1 << 14)
def choose_set(
    machine: LargeMachine, domain: int, must_include: int, size: int, policy: PlacementPolicy
) -> int:
    """A set of a domain: packed on an even machine, else the best that the search finds."""
    near = domain & machine.near_rdma if policy.nic is not NicRule.UNSET else 0
    held = must_include
    if near and not held & machine.near_rdma and held.bit_count() < size:
        held |= _pack(machine.levels, near, 1, held)
    packed = held | _pack(machine.levels, domain & ~held, size - held.bit_count(), held)
    if machine.is_even or size == 1:
        return packed
    return _Search(machine, domain, must_include, policy).best(
        packed, _seeds(machine, domain, near)
    )


def _seeds(machine: LargeMachine, domain: int, near: int) -> list[int]:
    """The devices of a domain, the most promising first."""
    capacities = machine.capacities
    unit, fabrics = capacities.unit_gbytes_per_s, capacities.fabrics

    def bandwidth(gpu: int) -> float:
        ports = sum(fabric.port_gbytes_per_s[gpu] for fabric in fabrics)
        return ports + unit * sum(capacities.units[gpu][other] for other in gpus_of(domain))

    return sorted(gpus_of(domain), key=lambda gpu: (not near >> gpu & 1, -bandwidth(gpu), gpu))


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

    def __init__(
        self, machine: LargeMachine, domain: int, must_include: int, policy: PlacementPolicy
    ) -> None:
        self._machine = machine
        self._domain = domain
        self._must = must_include
        self._policy = policy
        self._left = 0
        self._rated: dict[int, tuple[bool, bool, bool, float]] = {}

    def best(self, packed: int, seeds: list[int]) -> int:
        """The best set found of the size of `packed`, which is one of them."""
        size = packed.bit_count()
        self._left = max(size, MAX_WORK // size**3)
        found = packed
        for seed in seeds[: self._left // 2]:
            grown = self._grown(self._must | 1 << seed, size)
            # Of equal sets the packing's own stands, then the one found first.
            if grown.bit_count() == size and self._quality(grown) > self._quality(found):
                found = grown
        return self._swapped(found)

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
        return [mask | 1 << gpu for gpu in gpus_of(joined & outside or outside)]

    def _grown(self, mask: int, size: int) -> int:
        while mask.bit_count() < size:
            members = gpus_of(mask)
            outside = gpus_of(self._domain & ~mask)
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
            for out in gpus_of(mask & ~self._must):
                options = self._wider(mask & ~(1 << out))[: self._left]
                better = max(options, key=self._order, default=mask)
                if self._quality(better) > self._quality(mask):
                    mask, improved = better, True
        return mask
