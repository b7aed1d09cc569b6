"""Nodes of more than 16 devices: MIG slices, time-sliced replicas, rack-scale NVLink domains.

What it answers: the same question as `topology.select` where a table of every set (2**n) is out of
reach. It is exact where links are equal, and bounded in time elsewhere.

Method.

- *Even* machine: one up fabric with equal ports joins all devices, or no link joins any, all PCIe
  levels are equal and so are the sockets. A set's value depends on its size alone, so value and
  remainder are exact and every set ties; what is left to choose is packing. Devices are grouped
  (same parent GPU, same PCIe switch, same socket, nearest first) and taken from the group with the
  fewest free devices that still holds the request, else whole groups first, most free first; then
  lowest ids. Where the pod wishes a NIC, one device near a NIC is packed first.
- Elsewhere: the packing's own set, and from each seed device (those near a NIC first where the pod
  wishes one, then those with the most accelerator bandwidth) a set that grows by the device with
  the most accelerator bandwidth into it (ties: nearest on PCIe, lowest id). The set that serves the
  policy best (conditions, wishes, then value; of equal ones the packing's own) is improved by
  single swaps. At most `MAX_WORK / size**3` sets are rated. What is left behind is counted as on
  an even machine.

Both are done for every part of the machine in which the affinity level can hold; of equal sets the
one from the part with the fewest free devices is taken.

The value of one set is `topology.value.set_value` in both cases. Measurements are not applied above
16 devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from topology.capacity import node_capacities
from topology.levels import possible_neighbours
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
from topology.value import STATED_ERROR, Limit, islands_of, set_value, start_up_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topology.capacity import Capacities
    from topology.model import NodeTopology
    from topology.remainder import Demand

__all__ = ["MAX_WORK", "LargeMachine", "large_machine", "select_large", "shared_cost"]

MAX_WORK = 100_000
"""Bound of one search, in size**3 a rated set: some 195 sets of 8 devices, 24 of 16 (and
as many as the size has devices, above that). The size cubed is what a minimum cut costs."""


@dataclass(frozen=True, slots=True, eq=False)
class LargeMachine:
    """A machine type of more than 16 devices.

    `levels` are partitions of the devices into groups, coarsest first: sockets, PCIe switch trees,
    innermost PCIe switches, parent GPUs. `models` are the masks of one GPU model each. `near_rdma`
    are the devices with an RDMA NIC within PXB. `is_even`: a set's value depends on its size alone.
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
    groups = [group for group, _ in capacities.switch_groups]
    switches = _partition(everything, groups)
    trees = _partition(everything, sorted(groups, key=int.bit_count, reverse=True))
    parents = _by(topology, lambda i: topology.gpus[i].parent or f"#{i}")
    # Parts of one GPU are on one switch and one socket, whatever the levels tell.
    switches = _joined(switches, parents)
    trees = _joined(trees, switches)
    sockets = _joined(sockets, trees)
    near = {PcieLevel.PIX, PcieLevel.PXB}
    return LargeMachine(
        topology=topology,
        demand=demand,
        capacities=capacities,
        levels=(sockets, trees, switches, parents),
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
    """Disjoint groups, the first where they nest, and every device left over by itself."""
    parts: list[int] = []
    left = everything
    for group in groups:
        if group & left == group:
            parts.append(group)
            left &= ~group
    return (*parts, *(1 << i for i in gpus_of(left)))


def _joined(coarse: tuple[int, ...], fine: tuple[int, ...]) -> tuple[int, ...]:
    """The coarse groups, those that share a fine one made one."""
    groups = list(coarse)
    for part in fine:
        touched = [group for group in groups if group & part]
        if len(touched) > 1:
            whole = 0
            for group in touched:
                whole |= group
            groups = [group for group in groups if not group & part] + [whole]
    return tuple(sorted(groups, key=lambda group: group & -group))


def _is_even(topology: NodeTopology, capacities: Capacities) -> bool:
    everything = (1 << topology.n_gpus) - 1
    for fabric in capacities.fabrics:
        if fabric.members == everything:
            return len(set(fabric.port_gbytes_per_s)) == 1
    if any(capacities.adjacency) or len(set(capacities.port_gbytes_per_s)) > 1:
        return False
    levels = {level for row in topology.pcie for level in row} - {PcieLevel.SELF}
    return len(levels) == 1 and len(capacities.socket_groups) in {1, topology.n_gpus}


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
    domains = [part & area for area in areas for part in _near(machine, area, size, policy)]
    able = [
        domain
        for domain in dict.fromkeys(domains + areas)
        if domain.bit_count() >= size and must_include & ~domain == 0
    ]
    if not able:
        return Unfit(UnfitReason.MIXED_MODELS, f"{size} devices of one model")
    found = [
        _rate(machine, _choose(machine, domain, must_include, size, policy), available, policy)
        for domain in able
    ]
    fitting = [
        (_rank(machine, entry, policy), domain.bit_count(), entry.gpus, entry)
        for entry, domain in zip(found, able, strict=True)
        if _unmet(machine, entry.mask, policy) is None
    ]
    if fitting:
        return min(fitting, key=lambda option: option[:3])[3]
    detail = f"{size} devices, affinity {policy.affinity.value}"
    never, taken = min(
        filter(None, (_unmet(machine, entry.mask, policy) for entry in found)), key=_late
    )
    everything = machine.all_gpus
    if available != everything or must_include:
        empty = select_large(
            machine, available=everything, must_include=0, size=size, policy=policy
        )
        return Unfit(taken if isinstance(empty, Selected) else empty.reason, detail)
    if never is UnfitReason.AFFINITY_NEVER and _might_hold(machine, size, policy.affinity):
        never = UnfitReason.AFFINITY_UNKNOWN
    return Unfit(never, detail)


def _late(reasons: tuple[UnfitReason, UnfitReason]) -> int:
    """Sort key: the condition that is met last stands first, since the others can be met."""
    return -list(UnfitReason).index(reasons[0])


def _might_hold(machine: LargeMachine, size: int, affinity: Affinity) -> bool:
    """Whether some set would have a level if everything unknown turned out well."""
    rows = possible_neighbours(machine.topology, affinity)
    hopeful = replace(machine.capacities, adjacency=tuple(rows))
    return any(
        island.bit_count() >= size
        for model in machine.models
        for island in islands_of(hopeful, model)
    )


def _near(machine: LargeMachine, area: int, size: int, policy: PlacementPolicy) -> list[int]:
    """The parts of an area inside which the affinity level can hold."""
    if size == 1:
        return []
    sockets, trees, *_ = machine.levels
    if policy.affinity is Affinity.SWITCH:
        return list(trees)
    if policy.affinity is Affinity.NUMA:
        return list(sockets)
    return islands_of(machine.capacities, area)


def _holds(machine: LargeMachine, mask: int, affinity: Affinity) -> bool:
    sockets, trees, *_ = machine.levels
    if affinity is Affinity.SWITCH:
        return any(mask & ~group == 0 for group in trees)
    if affinity is Affinity.NUMA:
        return any(mask & ~group == 0 for group in sockets)
    return affinity is not Affinity.NVLINK or len(islands_of(machine.capacities, mask)) == 1


def _satisfies(machine: LargeMachine, mask: int, affinity: Affinity) -> bool:
    return mask.bit_count() == 1 or _holds(machine, mask, affinity)


def _unmet(
    machine: LargeMachine, mask: int, policy: PlacementPolicy
) -> tuple[UnfitReason, UnfitReason] | None:
    """The reasons (never, taken) of the first condition that a set does not meet."""
    if policy.strength is Strength.REQUIRED and not _satisfies(machine, mask, policy.affinity):
        return UnfitReason.AFFINITY_NEVER, UnfitReason.AFFINITY_TAKEN
    if policy.nic is NicRule.REQUIRED and not mask & machine.near_rdma:
        return UnfitReason.NIC_NEVER, UnfitReason.NIC_TAKEN
    floor = policy.min_bandwidth_gbytes_per_s
    if floor is not None and mask.bit_count() > 1:
        value, limit = _value(machine, mask)
        if value * (1 - STATED_ERROR[limit]) < floor or not _is_known(machine, mask, limit):
            return UnfitReason.BANDWIDTH_NEVER, UnfitReason.BANDWIDTH_TAKEN
    return None


def _is_known(machine: LargeMachine, mask: int, limit: Limit) -> bool:
    """Whether no unknown link or level enters a set's value."""
    links, pcie = machine.topology.links, machine.topology.pcie
    needs_pcie = limit in {Limit.PORT, Limit.UPLINK, Limit.SOCKET}
    return all(
        links[i][j].is_known and not (needs_pcie and pcie[i][j] is PcieLevel.UNKNOWN)
        for i, j in combinations(gpus_of(mask), 2)
    )


def _rank(
    machine: LargeMachine, entry: Selected, policy: PlacementPolicy
) -> tuple[bool, bool, float]:
    lacks_nic = policy.nic is NicRule.PREFERRED and not entry.mask & machine.near_rdma
    value = 0.0 if is_remainder_first(policy, len(entry.gpus)) else entry.value_gbytes_per_s
    return (not entry.satisfies_affinity, lacks_nic, -value)


def _rate(machine: LargeMachine, mask: int, available: int, policy: PlacementPolicy) -> Selected:
    size = mask.bit_count()
    value, limit = _value(machine, mask)
    best = _best_value(machine, size)
    return Selected(
        gpus=gpus_of(mask),
        value_gbytes_per_s=value,
        loss=max(0.0, 1 - value / best) if best > 0 else 0.0,
        satisfies_affinity=_satisfies(machine, mask, policy.affinity),
        has_near_nic=bool(mask & machine.near_rdma),
        remainder_cost_gpus=shared_cost(machine, available.bit_count(), size),
        value_class=0 if value >= best * (1 - VALUE_CLASS_GAP) else 1,
        limit=limit,
    )


@lru_cache(maxsize=1 << 16)
def _value(machine: LargeMachine, mask: int) -> tuple[float, Limit]:
    rated = set_value(machine.capacities, mask)
    scale = start_up_cost(rated.limit) * FITTED_MESSAGE_BYTES / REFERENCE_MESSAGE_BYTES
    b_inf = rated.value_gbytes_per_s
    return round(b_inf / (1 + scale * b_inf), 6), rated.limit


@lru_cache(maxsize=1024)
def _best_value(machine: LargeMachine, size: int) -> float:
    """The best value that the search finds on the empty machine."""
    areas = [model for model in machine.models if model.bit_count() >= size]
    sets = [_choose(machine, area, 0, size, DEFAULT_POLICY) for area in areas or [machine.all_gpus]]
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
def _choose(
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
        """What the policy asks of a set: its conditions, its two wishes, its value."""
        if mask not in self._rated:
            self._left -= 1
            machine, policy = self._machine, self._policy
            self._rated[mask] = (
                _unmet(machine, mask, policy) is None,
                _satisfies(machine, mask, policy.affinity),
                policy.nic is NicRule.UNSET or mask & machine.near_rdma != 0,
                _value(machine, mask)[0],
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
