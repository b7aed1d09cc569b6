"""Nodes of more than 16 devices: MIG slices, time-sliced replicas, rack-scale NVLink domains.

What it answers: the same question as `topology.select` where a table of every set (2**n) is out of
reach. It is exact where links are equal, and bounded in time elsewhere.

Method.

- *Even* machine: one up fabric with equal ports joins all devices, or no link joins any and all
  PCIe levels are equal. A set's value depends on its size alone, so value and remainder are exact
  and every set ties; what is left to choose is packing. Devices are grouped (same parent GPU, same
  PCIe switch, same socket, nearest first) and taken from the group with the fewest free devices
  that still holds the request, else whole groups first, most free first; then lowest ids.
- Elsewhere: the packing's own set, and from each seed device a set that grows by the device that
  adds most value (ties: packing order) and is then improved by single swaps. At most
  `MAX_WORK / size**3` sets are rated; the best found stands. What is left behind is counted as on
  an even machine.

The value of one set is `topology.value.set_value` in both cases. Measurements are not applied above
16 devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from topology.capacity import node_capacities
from topology.links import FITTED_MESSAGE_BYTES, REFERENCE_MESSAGE_BYTES
from topology.masks import gpus_of, mask_of
from topology.model import PcieLevel
from topology.outcome import Selected, Unfit, UnfitReason
from topology.policy import (
    DEFAULT_POLICY,
    Affinity,
    NicRule,
    PlacementPolicy,
    Strength,
    is_remainder_first,
)
from topology.remainder import DEFAULT_DEMAND
from topology.tables import VALUE_CLASS_GAP
from topology.value import STATED_ERROR, islands_of, set_value, start_up_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topology.capacity import Capacities
    from topology.model import NodeTopology
    from topology.remainder import Demand
    from topology.value import Limit

__all__ = ["MAX_WORK", "LargeMachine", "large_machine", "select_large", "shared_cost"]

MAX_WORK = 200_000
"""Bound of one search, in size**3 a rated set: some 390 sets of 8 devices, 48 of 16. The size cubed
is what a minimum cut costs."""


@dataclass(frozen=True, slots=True, eq=False)
class LargeMachine:
    """A machine type of more than 16 devices.

    `levels` are partitions of the devices into groups, coarsest first: sockets, PCIe switches,
    parent GPUs. `models` are the masks of one GPU model each. `near_rdma` are the devices with an
    RDMA NIC within PXB. `is_even`: a set's value depends on its size alone.
    """

    topology: NodeTopology
    demand: Demand
    capacities: Capacities
    levels: tuple[tuple[int, ...], ...]
    models: tuple[int, ...]
    near_rdma: int
    is_even: bool

    @property
    def n_gpus(self) -> int:
        """Number of devices."""
        return self.topology.n_gpus

    @property
    def all_gpus(self) -> int:
        """Mask of all devices."""
        return (1 << self.topology.n_gpus) - 1


def large_machine(topology: NodeTopology, demand: Demand = DEFAULT_DEMAND) -> LargeMachine:
    """Prepare a machine type of any size for `select_large`. O(n^2)."""
    capacities = node_capacities(topology)
    n = topology.n_gpus
    everything = (1 << n) - 1
    sockets = tuple(group for group, _ in capacities.socket_groups)
    switches = _partition(everything, (group for group, _ in capacities.switch_groups))
    parents = _by(topology, lambda i: topology.gpus[i].parent or f"#{i}")
    near = {PcieLevel.PIX, PcieLevel.PXB}
    return LargeMachine(
        topology=topology,
        demand=demand,
        capacities=capacities,
        levels=(sockets, switches, parents),
        models=_by(topology, lambda i: topology.gpus[i].model or ""),
        near_rdma=mask_of(
            i
            for i in range(n)
            if any(nic.is_rdma and nic.levels[i] in near for nic in topology.nics)
        ),
        is_even=_is_even(topology, capacities),
    )


def _by(topology: NodeTopology, key: Callable[[int], str]) -> tuple[int, ...]:
    groups: dict[str, int] = {}
    for i in range(topology.n_gpus):
        groups[key(i)] = groups.get(key(i), 0) | 1 << i
    return tuple(groups.values())


def _partition(everything: int, groups: Iterable[int]) -> tuple[int, ...]:
    """Disjoint groups, the innermost where they nest, and every device left over by itself."""
    parts: list[int] = []
    left = everything
    for group in groups:
        if group & left == group:
            parts.append(group)
            left &= ~group
    return (*parts, *(1 << i for i in gpus_of(left)))


def _is_even(topology: NodeTopology, capacities: Capacities) -> bool:
    everything = (1 << topology.n_gpus) - 1
    for fabric in capacities.fabrics:
        if fabric.members == everything:
            return len(set(fabric.port_gbytes_per_s)) == 1
    if any(capacities.adjacency) or len(set(capacities.port_gbytes_per_s)) > 1:
        return False
    levels = {level for row in topology.pcie for level in row} - {PcieLevel.SELF}
    return len(levels) == 1 and not (capacities.switch_groups and not capacities.is_p2p)


def select_large(
    machine: LargeMachine,
    *,
    available: int,
    must_include: int,
    size: int,
    policy: PlacementPolicy = DEFAULT_POLICY,
) -> Selected | Unfit:
    """Choose a set of `size` available devices that holds `must_include`.

    The caller has checked masks and counts (`topology.select.select_set`).
    """
    mixes = policy.affinity is Affinity.NONE
    areas = [available & model for model in (machine.all_gpus,) * mixes or machine.models]
    domains = [part & area for area in areas for part in _near(machine, area, policy)]
    able = [
        domain
        for domain in dict.fromkeys(domains + areas)
        if domain.bit_count() >= size and must_include & ~domain == 0
    ]
    if not able:
        return Unfit(UnfitReason.MIXED_MODELS, f"{size} devices of one model")
    found = [
        _rate(machine, _choose(machine, domain, must_include, size), available, policy)
        for domain in able
    ]
    fitting = [entry for entry in found if _unmet(machine, entry, policy) is None]
    if fitting:
        return min(fitting, key=lambda entry: _rank(machine, entry, policy))
    never, taken = _unmet(machine, found[0], policy) or (UnfitReason.MIXED_MODELS,) * 2
    everything = machine.all_gpus
    reason = never
    if available != everything or must_include:
        empty = select_large(
            machine, available=everything, must_include=0, size=size, policy=policy
        )
        reason = taken if isinstance(empty, Selected) else never
    return Unfit(reason, f"{size} devices, affinity {policy.affinity.value}")


def _near(machine: LargeMachine, area: int, policy: PlacementPolicy) -> list[int]:
    """The parts of an area inside which the affinity level can hold."""
    sockets, switches, _ = machine.levels
    if policy.affinity is Affinity.SWITCH:
        return list(switches)
    if policy.affinity is Affinity.NUMA:
        return list(sockets)
    return islands_of(machine.capacities, area)


def _holds(machine: LargeMachine, mask: int, affinity: Affinity) -> bool:
    sockets, switches, _ = machine.levels
    if affinity is Affinity.SWITCH:
        return any(mask & ~group == 0 for group in switches)
    if affinity is Affinity.NUMA:
        return any(mask & ~group == 0 for group in sockets)
    return affinity is not Affinity.NVLINK or len(islands_of(machine.capacities, mask)) == 1


def _unmet(
    machine: LargeMachine, entry: Selected, policy: PlacementPolicy
) -> tuple[UnfitReason, UnfitReason] | None:
    """The reasons (never, taken) of the first condition that a set does not meet."""
    if policy.strength is Strength.REQUIRED and not entry.satisfies_affinity:
        return UnfitReason.AFFINITY_NEVER, UnfitReason.AFFINITY_TAKEN
    if policy.nic is NicRule.REQUIRED and not entry.mask & machine.near_rdma:
        return UnfitReason.NIC_NEVER, UnfitReason.NIC_TAKEN
    floor = policy.min_bandwidth_gbytes_per_s
    sure = entry.value_gbytes_per_s * (1 - STATED_ERROR[entry.limit])
    if (
        floor is not None
        and len(entry.gpus) > 1
        and (sure < floor or not _is_known(machine, entry))
    ):
        return UnfitReason.BANDWIDTH_NEVER, UnfitReason.BANDWIDTH_TAKEN
    return None


def _is_known(machine: LargeMachine, entry: Selected) -> bool:
    """Whether no unknown link or level enters a set's value."""
    pairs = [(i, j) for i in entry.gpus for j in entry.gpus if j < i]
    links, pcie = machine.topology.links, machine.topology.pcie
    is_linked = _holds(machine, entry.mask, Affinity.NVLINK)
    return all(
        links[i][j].is_known and (is_linked or pcie[i][j] is not PcieLevel.UNKNOWN)
        for i, j in pairs
    )


def _rank(
    machine: LargeMachine, entry: Selected, policy: PlacementPolicy
) -> tuple[bool, bool, float, tuple[int, ...]]:
    lacks_nic = policy.nic is NicRule.PREFERRED and not entry.mask & machine.near_rdma
    value = 0.0 if is_remainder_first(policy, len(entry.gpus)) else entry.value_gbytes_per_s
    return (not entry.satisfies_affinity, lacks_nic, -value, entry.gpus)


def _rate(machine: LargeMachine, mask: int, available: int, policy: PlacementPolicy) -> Selected:
    size = mask.bit_count()
    value, limit = _value(machine, mask)
    best = _best_value(machine, size)
    return Selected(
        gpus=gpus_of(mask),
        value_gbytes_per_s=value,
        loss=max(0.0, 1 - value / best) if best > 0 else 0.0,
        satisfies_affinity=size == 1 or _holds(machine, mask, policy.affinity),
        remainder_cost_gpus=shared_cost(machine, available.bit_count(), size),
        value_class=0 if value >= best * (1 - VALUE_CLASS_GAP) else 1,
        limit=limit,
    )


def _value(machine: LargeMachine, mask: int) -> tuple[float, Limit]:
    rated = set_value(machine.capacities, mask)
    scale = start_up_cost(rated.limit) * FITTED_MESSAGE_BYTES / REFERENCE_MESSAGE_BYTES
    b_inf = rated.value_gbytes_per_s
    return b_inf / (1 + scale * b_inf), rated.limit


@lru_cache(maxsize=1024)
def _best_value(machine: LargeMachine, size: int) -> float:
    """The best value that the search finds on the empty machine."""
    areas = [model for model in machine.models if model.bit_count() >= size]
    sets = [_choose(machine, area, 0, size) for area in areas or [machine.all_gpus]]
    return max(_value(machine, mask)[0] for mask in sets)


def shared_cost(machine: LargeMachine, n_free: int, n_taken: int) -> float:
    """R(F) - R(F - S) in GPU-equivalents, by count, as on an even machine."""
    lost = _share(machine, n_free) - _share(machine, n_free - n_taken)
    return lost * machine.n_gpus


def _share(machine: LargeMachine, n_free: int) -> float:
    """R of any n free devices of an even machine: whole sets that still fit."""
    fitting = [(d, weight) for d, weight in machine.demand.sizes if d <= machine.n_gpus]
    total = sum(weight for _, weight in fitting)
    if not total:
        return n_free / machine.n_gpus
    held = sum(weight * (n_free // d) / (machine.n_gpus // d) for d, weight in fitting)
    return held / total


@lru_cache(maxsize=1 << 14)
def _choose(machine: LargeMachine, domain: int, must_include: int, size: int) -> int:
    """A set of a domain: packed on an even machine, else the best that the search finds."""
    packed = must_include | _pack(
        machine.levels, domain & ~must_include, size - must_include.bit_count(), must_include
    )
    if machine.is_even or size == 1:
        return packed
    search = _Search(machine, domain, must_include)
    return search.best(packed)


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

    def __init__(self, machine: LargeMachine, domain: int, must_include: int) -> None:
        self._machine = machine
        self._domain = domain
        self._must = must_include
        self._left = 0
        self._rated: dict[int, float] = {}

    def best(self, packed: int) -> int:
        """The best set found of the size of `packed`, which is one of them."""
        size = packed.bit_count()
        self._left = max(2 * size, MAX_WORK // size**3)
        found = self._swapped(packed)
        for seed in gpus_of(self._domain):
            if self._left <= 0:
                break
            grown = self._grown(self._must | 1 << seed, size)
            if grown.bit_count() == size:
                found = max(found, self._swapped(grown), key=self._order)
        return found

    def _order(self, mask: int) -> tuple[float, tuple[int, ...]]:
        return self._value_of(mask), tuple(-gpu for gpu in gpus_of(mask))

    def _value_of(self, mask: int) -> float:
        if mask not in self._rated:
            self._left -= 1
            self._rated[mask] = round(_value(self._machine, mask)[0], 6)
        return self._rated[mask]

    def _grown(self, mask: int, size: int) -> int:
        while mask.bit_count() < size and self._left > 0:
            options = [mask | 1 << gpu for gpu in gpus_of(self._domain & ~mask)]
            mask = max(options, key=self._order)
        return mask

    def _swapped(self, mask: int) -> int:
        improved = True
        while improved and self._left > 0:
            improved = False
            for out in gpus_of(mask & ~self._must):
                options = [mask & ~(1 << out) | 1 << gpu for gpu in gpus_of(self._domain & ~mask)]
                better = max(options, key=self._order, default=mask)
                if self._value_of(better) > self._value_of(mask):
                    mask, improved = better, True
        return mask
