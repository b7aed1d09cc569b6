"""What a set of GPUs is worth: NCCL all-reduce bus bandwidth in GB/s, from the node's capacities.

What it answers: for one set, the bandwidth that an all-reduce over it can be expected to reach with
large messages and idle neighbours, and what limits it. One figure, in GB/s, for ranking, for
`min-bandwidth` and for people. It claims nothing for all-to-all, nor for latency-bound inference.

Method (b: rate of one link; k: set size). The first that applies:

1. *Switch*: all members hang on one up fabric. The slowest port, times what in-switch reduction
   adds at this size. Ports are never summed per pair.
2. *Ring, relay*: direct links connect the set. b * r with r closed rings of data
   (`topology.value.ring_packing`); where no closed ring exists, b * rho * cut with the minimum cut
   in links, since NCCL relays through the set's own GPUs. Beside a ring b * rho * (cut - 1) stands,
   so that one narrow link that closes a wide chain does not lower what the chain carries.
3. *Port, uplink, socket*: PCIe carries what the accelerator links do not connect. The least of
   these cuts, each with the accelerator links that cross it: one GPU (its port), one island of GPUs
   that links connect (their ports; the socket link where its PCIe leads out of the socket; and
   what the links carry inside it), one
   switch (its uplink), one socket (its link). Without P2P, traffic is staged through host memory: a
   GPU's port gives `staging_share`, and the islands below one switch share its uplink.

PCIe alone, without any link, is a lower bound: a dying link must not make a set worth less than
none would.

Start-up cost: 1/B(M) = 1/B_inf + a * (16 MiB / M) (`topology.model.links.ModelConstants`).
Source: facts measured on BandPilot's V100, A6000 and H100 nodes; `benchmarks fidelity` reports how
far the value is off, by limit. A single GPU has no all-reduce: its value is 0.

`set_value` values one set of any node; `topology.value.value_table` every mask of up to 16 GPUs at
once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from topology.model import (
    DEFAULT_CONSTANTS,
    FITTED_MESSAGE_BYTES,
    MAX_TABLE_GPUS,
    gpus_of,
    islands_of,
)
from topology.value.ring_packing import MAX_PACKING_STEPS, pack_rings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from topology.model import ModelConstants
    from topology.value.capacity import Capacities

__all__ = [
    "BOUND_DECIMALS",
    "STATED_ERROR",
    "TIE_ORDER",
    "Limit",
    "SetValue",
    "at_message_size",
    "load_graph_library",
    "set_value",
    "socket_peers",
    "start_up_cost",
    "switch_gain",
    "without_links",
]


class Limit(IntEnum):
    """What limits a set: the best path that its members share, best first."""

    NOTHING = 0
    SWITCH = 1
    RING = 2
    RELAY = 3
    PORT = 4
    UPLINK = 5
    SOCKET = 6


STATED_ERROR = {
    Limit.NOTHING: 0.0,
    Limit.SWITCH: 0.12,
    Limit.RING: 0.07,
    Limit.RELAY: 0.21,
    Limit.PORT: 0.13,
    Limit.UPLINK: 0.42,
    Limit.SOCKET: 0.42,
}
"""How far off the value may be, as a share, by what limits the set: the larger 90th percentile of
the relative error over the measured nodes (`benchmarks fidelity`). No measured node is limited by a
switch uplink; it takes the socket's. `min-bandwidth` is compared after subtracting this share."""


TIE_ORDER = (
    Limit.PORT,
    Limit.UPLINK,
    Limit.SOCKET,
    Limit.SWITCH,
    Limit.RING,
    Limit.RELAY,
    Limit.NOTHING,
)
"""Which of two equal bounds is reported: what islands carry inside comes after what joins them."""

BOUND_DECIMALS = 9
"""Cuts are compared in 1e-9 GB/s: the order in which floats are added must not decide."""


@dataclass(frozen=True, slots=True)
class SetValue:
    """The value of one set. `rings` and `cut` count links; 0 where no direct links connect it."""

    value_gbytes_per_s: float
    limit: Limit
    rings: int
    cut: int


def socket_peers(capacities: Capacities) -> list[int]:
    """For each GPU the mask of the GPUs on its socket, itself included."""
    peers = [0] * capacities.n
    for group, _ in capacities.socket_groups:
        for i in gpus_of(group):
            peers[i] |= group
    return peers


def start_up_cost(limit: Limit, constants: ModelConstants = DEFAULT_CONSTANTS) -> float:
    """The `a` of a kind of path, s/GB per 16 MiB."""
    if limit is Limit.SWITCH:
        return constants.switch_a
    return constants.mesh_a if limit in {Limit.RING, Limit.RELAY} else constants.pcie_a


def at_message_size(
    value: NDArray[np.float64], latency: NDArray[np.float64], message_bytes: int
) -> NDArray[np.float64]:
    """B(M) from B_inf, both GB/s, by the start-up cost `latency` (s/GB, per 16 MiB)."""
    scaled = latency * (FITTED_MESSAGE_BYTES / message_bytes)
    return value / (1 + scaled * value)


def switch_gain(constants: ModelConstants, k: int, *, reduces: bool) -> float:
    """What the switch makes of the slowest port at set size k: 1 where it does not reduce."""
    gains = constants.in_switch_gain
    return gains[min(max(k, 2) - 2, len(gains) - 1)] if reduces else 1.0


def set_value(
    capacities: Capacities, mask: int, constants: ModelConstants = DEFAULT_CONSTANTS
) -> SetValue:
    """Value one set of a node of any size, B_inf in GB/s; the rules of this module, one by one.

    The tables follow the same rules for every mask at once; this is their definition, and what
    nodes of more than 16 devices use. Bounded by `MAX_PACKING_STEPS` and O(k^3).
    """
    if mask.bit_count() < 2:  # noqa: PLR2004 - nothing to reduce
        return SetValue(0.0, Limit.NOTHING, 0, 0)
    found = _linked_value(capacities, mask, constants)
    if found is None:
        found = _least(_tree_cuts(capacities, constants, mask))
    if not capacities.fabrics and not any(capacities.adjacency[i] for i in gpus_of(mask)):
        return found
    alone = _least(_tree_cuts(without_links(capacities), constants, mask))
    if alone.value_gbytes_per_s > found.value_gbytes_per_s:
        return SetValue(alone.value_gbytes_per_s, alone.limit, found.rings, found.cut)
    return found


def without_links(capacities: Capacities) -> Capacities:
    """The same node as PCIe alone would carry it."""
    nothing = tuple((0,) * capacities.n for _ in range(capacities.n))
    return replace(capacities, units=nothing, adjacency=(0,) * capacities.n, fabrics=())


def _least(cuts: Iterable[tuple[float, Limit]]) -> SetValue:
    """The least cut; of equal ones the kind that stands first in `TIE_ORDER`."""
    value, kind = min(
        ((round(carried, BOUND_DECIMALS), kind) for carried, kind in cuts),
        key=lambda found: (found[0], TIE_ORDER.index(found[1])),
    )
    return SetValue(value, kind, 0, 0)


def _linked_value(capacities: Capacities, mask: int, constants: ModelConstants) -> SetValue | None:
    """Rules 1 and 2; None where links do not connect the set, or it is one GPU."""
    members = gpus_of(mask)
    if len(members) < 2:  # noqa: PLR2004 - nothing to reduce
        return None
    for fabric in capacities.fabrics:
        if mask & ~fabric.members == 0:
            gain = switch_gain(constants, len(members), reduces=fabric.reduces)
            slowest = min(fabric.port_gbytes_per_s[i] for i in members)
            return SetValue(slowest * gain, Limit.SWITCH, 0, 0)
    if len(islands_of(capacities.adjacency, mask)) > 1:
        return None
    units = [[capacities.units[i][j] for j in members] for i in members]
    cut = _cut_of(units)
    if not cut:
        return None
    # A set of a large node is rated for itself: it gets a part of the steps, which is still more
    # than any recorded mesh of eight GPUs takes.
    steps = MAX_PACKING_STEPS // (1 if capacities.n <= MAX_TABLE_GPUS else 200)
    packed = pack_rings(units, cut // 2, max_steps=steps)
    rings = cut if len(members) == 2 else 2 * packed  # noqa: PLR2004
    relayed = constants.relay_share * (cut - (rings > 0))
    kind = Limit.RING if rings >= relayed else Limit.RELAY
    return SetValue(capacities.unit_gbytes_per_s * max(rings, relayed), kind, rings, cut)


def load_graph_library() -> None:
    """Import what `set_value` needs and this module does not import, so that no set waits for it.

    A node's agent rates no set here, and the library would be a tenth of its memory.
    """
    import_module("networkx")


def _cut_of(units: list[list[int]]) -> int:
    """Minimum cut of a multigraph of any size; 0 where it is not connected."""
    import networkx as nx  # noqa: PLC0415 - `load_graph_library`

    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(units)))
    for i, row in enumerate(units):
        graph.add_weighted_edges_from((i, j, u) for j, u in enumerate(row[:i]) if u)
    if not nx.is_connected(graph):
        return 0
    return int(nx.stoer_wagner(graph)[0])


def _tree_cuts(
    capacities: Capacities, constants: ModelConstants, mask: int
) -> Iterator[tuple[float, Limit]]:
    """The PCIe cuts of one set (rule 3), each with its kind, in the order of the tables."""
    share = 1.0 if capacities.is_p2p else constants.staging_share
    ports = [share * port for port in capacities.port_gbytes_per_s]
    for i in gpus_of(mask):
        yield ports[i] + _crossing(capacities, 1 << i, mask), Limit.PORT
    islands = islands_of(capacities.adjacency, mask)
    if len(islands) > 1:
        peers = socket_peers(capacities)
        for island in islands:
            yield sum(ports[i] for i in gpus_of(island)), Limit.PORT
            is_alone = not any(peers[i] & mask & ~island for i in gpus_of(island))
            yield from _island_cuts(capacities, constants, island, is_alone=is_alone)
    for group, uplink in capacities.switch_groups:
        if capacities.is_p2p:
            if mask & group and mask & ~group:
                yield uplink + _crossing(capacities, group, mask), Limit.UPLINK
        elif (below := len(islands_of(capacities.adjacency, mask & group))) > 1:
            yield uplink * share / below, Limit.UPLINK
    for group, socket in capacities.socket_groups:
        if mask & group and mask & ~group:
            yield socket + _crossing(capacities, group, mask), Limit.SOCKET


def _island_cuts(
    capacities: Capacities, constants: ModelConstants, island: int, *, is_alone: bool
) -> Iterator[tuple[float, Limit]]:
    """The socket link that an island's PCIe leads over, and what its links carry inside.

    `is_alone`: the set has no GPU outside of the island on the island's sockets.
    """
    if is_alone:
        yield min((rate for _, rate in capacities.socket_groups), default=np.inf), Limit.SOCKET
    inside = _linked_value(capacities, island, constants)
    if inside is not None:
        yield inside.value_gbytes_per_s, inside.limit


def _crossing(capacities: Capacities, group: int, mask: int) -> float:
    inner, outer = gpus_of(mask & group), gpus_of(mask & ~group)
    unit = capacities.unit_gbytes_per_s
    total = sum(unit * capacities.units[i][j] for i in inner for j in outer)
    for fabric in capacities.fabrics:
        port = fabric.port_gbytes_per_s
        total += min(sum(port[i] for i in inner), sum(port[j] for j in outer))
    return total
