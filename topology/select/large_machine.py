"""A machine type of more than 16 devices: its groups, and what one set of it is and has.

What it answers: how the devices of a large node are grouped, what a set is worth, and which
conditions of a policy it meets. It chooses nothing (`topology.select.large_packing`,
`topology.select.large`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from topology.annotations import Affinity, NicRule, PlacementPolicy, Strength
from topology.model import (
    DEFAULT_CONSTANTS,
    FITTED_MESSAGE_BYTES,
    REFERENCE_MESSAGE_BYTES,
    PcieLevel,
)
from topology.select.outcome import UnfitReason
from topology.value import (
    DEFAULT_DEMAND,
    STATED_ERROR,
    Limit,
    alike_masks,
    gpus_near_rdma,
    gpus_of,
    is_known_set,
    islands_of,
    masks_by,
    node_capacities,
    start_up_cost,
    switch_gain,
)
from topology.value.limits import TIE_ORDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topology.model import NodeTopology
    from topology.value import Capacities, Demand

__all__ = [
    "LargeMachine",
    "large_machine",
    "satisfies_level",
    "unmet_condition",
    "value_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class LargeMachine:
    """A machine type of more than 16 devices.

    `levels` are partitions of the devices into groups, coarsest first: sockets, PCIe switch trees,
    innermost PCIe switches, parent GPUs. `models` are masks of GPUs that may be of one model.
    `near_rdma` are the devices with an RDMA NIC within PXB. `is_even`: a set's value depends on its
    size alone. `b_inf`: the value of a set of two devices or more without start-up cost, and what
    limits it.
    """

    topology: NodeTopology
    demand: Demand
    capacities: Capacities
    levels: tuple[tuple[int, ...], ...]
    models: tuple[int, ...]
    near_rdma: int
    is_even: bool
    b_inf: Callable[[int], tuple[float, Limit]]

    @property
    def n_gpus(self) -> int:
        """Number of devices."""
        return self.topology.n_gpus

    @property
    def all_gpus(self) -> int:
        """Mask of all devices."""
        return (1 << self.topology.n_gpus) - 1


def large_machine(topology: NodeTopology, demand: Demand = DEFAULT_DEMAND) -> LargeMachine:
    """Prepare a machine type of any size for `topology.select.large`. O(n^2)."""
    capacities = node_capacities(topology)
    is_even = _is_even(topology, capacities)
    n = topology.n_gpus
    everything = (1 << n) - 1
    sockets = tuple(group for group, _ in capacities.socket_groups)
    groups = [group for group, _ in capacities.switch_groups]
    switches = _partition(everything, groups)
    trees = _partition(everything, sorted(groups, key=int.bit_count, reverse=True))
    owners = masks_by(gpu.parent or f"#{i}" for i, gpu in enumerate(topology.gpus))
    parents = tuple(owners.values())
    # Parts of one GPU are on one switch and one socket, whatever the levels say.
    switches = _joined(switches, parents)
    trees = _joined(trees, switches)
    sockets = _joined(sockets, trees)
    return LargeMachine(
        topology=topology,
        demand=demand,
        capacities=capacities,
        levels=(sockets, trees, switches, parents),
        models=alike_masks(gpu.model for gpu in topology.gpus),
        near_rdma=gpus_near_rdma(topology),
        is_even=is_even,
        b_inf=partial(_even_value, capacities) if is_even else _defined_value(topology),
    )


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
            ports = set(fabric.port_gbytes_per_s)
            pcie = max(capacities.port_gbytes_per_s)
            return len(ports) == 1 and min(DEFAULT_CONSTANTS.in_switch_gain) * max(ports) > pcie
    if any(capacities.adjacency) or len(set(capacities.port_gbytes_per_s)) > 1:
        return False
    levels = {level for row in topology.pcie for level in row} - {PcieLevel.SELF}
    return len(levels) == 1 and len(capacities.socket_groups) in {1, topology.n_gpus}


@lru_cache(maxsize=1 << 16)
def value_of(machine: LargeMachine, mask: int) -> tuple[float, Limit]:
    """GB/s of one set at the reference message size, and what limits it."""
    if mask.bit_count() == 1:
        return 0.0, Limit.NOTHING
    b_inf, limit = machine.b_inf(mask)
    scale = start_up_cost(limit) * FITTED_MESSAGE_BYTES / REFERENCE_MESSAGE_BYTES
    return round(b_inf / (1 + scale * b_inf), 6), limit


def _defined_value(topology: NodeTopology) -> Callable[[int], tuple[float, Limit]]:
    """What the definition says of a set of an uneven machine, by its graph.

    Loaded here, before a request comes: no other machine needs a graph, and the library would add
    20 MiB to the node's plugin.
    """
    from topology.value.machine_graph import machine_graph  # noqa: PLC0415 - see above
    from topology.value.set_value import set_value  # noqa: PLC0415 - see above

    graph = machine_graph(topology)

    def rate(mask: int) -> tuple[float, Limit]:
        found = set_value(graph, gpus_of(mask))
        return found.value_gbytes_per_s, found.limit

    return rate


def _even_value(capacities: Capacities, mask: int) -> tuple[float, Limit]:
    """The value of a set of an even machine: what `set_value` comes to there."""
    size = mask.bit_count()
    fabric = next((one for one in capacities.fabrics if mask & ~one.members == 0), None)
    if fabric is not None:
        gain = switch_gain(DEFAULT_CONSTANTS, size, reduces=fabric.reduces)
        return fabric.port_gbytes_per_s[0] * gain, Limit.SWITCH
    share = 1.0 if capacities.is_p2p else DEFAULT_CONSTANTS.staging_share
    bounds = [(share * capacities.port_gbytes_per_s[0], Limit.PORT)]
    if len(capacities.socket_groups) > 1:
        bounds += [(rate, Limit.SOCKET) for _, rate in capacities.socket_groups]
    if not capacities.is_p2p:
        bounds += [(share * rate / size, Limit.UPLINK) for _, rate in capacities.switch_groups]
    return min(bounds, key=lambda bound: (bound[0], TIE_ORDER.index(bound[1])))


def satisfies_level(machine: LargeMachine, mask: int, affinity: Affinity) -> bool:
    """Whether a set has an affinity level; one device always, and any set `any` and `none`."""
    if mask.bit_count() == 1:
        return True
    sockets, trees, *_ = machine.levels
    if affinity is Affinity.PCIE_SWITCH:
        return any(mask & ~group == 0 for group in trees)
    if affinity is Affinity.NUMA:
        return any(mask & ~group == 0 for group in sockets)
    if affinity is Affinity.NVLINK:
        return len(islands_of(machine.capacities.adjacency, mask)) == 1
    return True


def unmet_condition(
    machine: LargeMachine, mask: int, policy: PlacementPolicy
) -> tuple[UnfitReason, UnfitReason] | None:
    """The reasons (never, taken) of the first condition that a set does not meet."""
    if policy.strength is Strength.REQUIRED and not satisfies_level(machine, mask, policy.affinity):
        return UnfitReason.AFFINITY_NEVER, UnfitReason.AFFINITY_TAKEN
    if policy.nic is NicRule.REQUIRED and not mask & machine.near_rdma:
        return UnfitReason.NIC_NEVER, UnfitReason.NIC_TAKEN
    floor = policy.min_bandwidth_gbytes_per_s
    if floor is not None and mask.bit_count() > 1:
        value, limit = value_of(machine, mask)
        if value * (1 - STATED_ERROR[limit]) < floor or not is_known_set(
            machine.topology, mask, limit
        ):
            return UnfitReason.BANDWIDTH_NEVER, UnfitReason.BANDWIDTH_TAKEN
    return None
