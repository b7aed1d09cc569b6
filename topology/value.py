"""What a set of GPUs is worth: NCCL all-reduce bus bandwidth in GB/s, from the node's capacities.

What it answers: for one set, the bandwidth that an all-reduce over it can be expected to reach with
large messages and idle neighbours, and what limits it. One figure, in GB/s, for ranking, for
`min-bandwidth` and for people. It claims nothing for all-to-all, nor for latency-bound inference.

Method (b: rate of one link; k: set size). The first that applies:

1. *Switch*: all members hang on one up fabric. The slowest port, times what in-switch reduction adds
   at this size. Ports are never summed per pair.
2. *Ring, relay*: direct links connect the set. b * max(r, rho * cut): r closed rings of data
   (`topology.packing`), cut the minimum cut in links, since NCCL relays through the set's own GPUs.
3. *Port, uplink, socket*: PCIe carries what the accelerator links do not connect. The least of these
   cuts, each with the accelerator links that cross it: one GPU (its port), one island of GPUs that
   links connect (their ports), one switch (its uplink), one socket (its link). Without P2P, traffic
   is staged through host memory: a GPU's port gives `staging_share`, and the islands below one
   switch share its uplink.

Start-up cost: 1/B(M) = 1/B_inf + a * (16 MiB / M) (`topology.links.ModelConstants`).
Source: facts measured on BandPilot's V100, A6000 and H100 nodes; `benchmarks fidelity` reports how
far the value is off, by limit. A single GPU has no all-reduce: its value is 0.

`value_table` gives every mask of up to 16 GPUs at once; `set_value` one set of any node.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from topology.links import DEFAULT_CONSTANTS, FITTED_MESSAGE_BYTES
from topology.masks import gpus_of, mask_index
from topology.packing import closed_ring_ends, minimum_cuts, pack_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from topology.capacity import Capacities
    from topology.links import ModelConstants

__all__ = [
    "STATED_ERROR",
    "Limit",
    "SetValue",
    "ValueTable",
    "at_message_size",
    "connected_masks",
    "set_value",
    "value_table",
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
    Limit.RELAY: 0.20,
    Limit.PORT: 0.11,
    Limit.UPLINK: 0.42,
    Limit.SOCKET: 0.42,
}
"""How far off the value may be, as a share, by what limits the set: the larger 90th percentile of
the relative error over the measured nodes (`benchmarks fidelity`). No measured node is limited by a
switch uplink; it takes the socket's. `min-bandwidth` is compared after subtracting this share."""


@dataclass(frozen=True, slots=True)
class SetValue:
    """The value of one set. `rings` and `cut` count links; 0 where no direct links connect it."""

    value_gbytes_per_s: float
    limit: Limit
    rings: int
    cut: int


@dataclass(frozen=True, slots=True, eq=False)
class ValueTable:
    """Every mask of n GPUs: arrays of length 2**n indexed by mask.

    `value` float64 GB/s without start-up cost (B_inf; 0 for fewer than two members), `latency`
    float64 s/GB (the `a` of its kind of path), `limit` int8 (`Limit`), `rings` and `cut` int16,
    `is_linked` bool: accelerator links (direct, or one up fabric) connect the members.
    """

    value: NDArray[np.float64]
    latency: NDArray[np.float64]
    limit: NDArray[np.int8]
    rings: NDArray[np.int16]
    cut: NDArray[np.int16]
    is_linked: NDArray[np.bool_]


def _doubled(n: int, start: float, step: Callable[[int, NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Table over masks by doubling: the masks with highest member i come from those below."""
    table = np.full(1, start)
    for i in range(n):
        table = np.concatenate([table, step(i, table)])
    return table


def _subset_sums(weights: tuple[float, ...]) -> NDArray[np.float64]:
    return _doubled(len(weights), 0.0, lambda i, below: below + weights[i])


def _subset_minima(weights: tuple[float, ...]) -> NDArray[np.float64]:
    return _doubled(len(weights), np.inf, lambda i, below: np.minimum(below, weights[i]))


def _subset_unions(parts: Sequence[int]) -> NDArray[np.int64]:
    table = np.zeros(1, dtype=np.int64)
    for part in parts:
        table = np.concatenate([table, table | part])
    return table


def _peers(n: int, groups: tuple[tuple[int, float], ...]) -> list[int]:
    """For each GPU the union of the groups that it is in."""
    peers = [0] * n
    for group, _ in groups:
        for i in gpus_of(group):
            peers[i] |= group
    return peers


class _Cuts:
    """Capacity across cuts for every mask of one node: links inside, ports, islands."""

    def __init__(self, capacities: Capacities) -> None:
        n = capacities.n
        self.masks = mask_index(n).masks
        unit = capacities.unit_gbytes_per_s
        rows = [_subset_sums(tuple(unit * u for u in row)) for row in capacities.units]
        self._inside = _doubled(n, 0.0, lambda i, below: below + rows[i][: len(below)])
        self._ports = [_subset_sums(fabric.port_gbytes_per_s) for fabric in capacities.fabrics]
        neighbours = _subset_unions(capacities.adjacency)
        self.island = _islands(self.masks, neighbours)

    def crossing(self, group: int, masks: NDArray[np.int64]) -> NDArray[np.float64]:
        """Accelerator bandwidth between the members inside `group` and the others."""
        inner, outer = masks & group, masks & ~group
        total = self._inside[masks] - self._inside[inner] - self._inside[outer]
        for ports in self._ports:
            total = total + np.minimum(ports[inner], ports[outer])
        return total


def connected_masks(joined: Sequence[int], n: int) -> NDArray[np.int64]:
    """The masks of n GPUs that a graph connects; `joined[i]` is the mask of i's neighbours.

    The empty mask and single GPUs are connected.

    >>> connected_masks([0b010, 0b101, 0b010], 3).tolist()
    [0, 1, 2, 3, 4, 6, 7]
    """
    masks = mask_index(n).masks
    return masks[_islands(masks, _subset_unions(joined)) == masks]


def _islands(masks: NDArray[np.int64], neighbours: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each mask the members that links inside it connect to its lowest member."""
    reached = masks & -masks
    while True:
        wider = (reached | neighbours[reached]) & masks
        if np.array_equal(wider, reached):
            return reached
        reached = wider


def value_table(
    capacities: Capacities, constants: ModelConstants = DEFAULT_CONSTANTS
) -> ValueTable:
    """Value every set of a node of up to 16 GPUs, by its labels.

    O(n^3 2^n) word operations; 3 ms for the 8-GPU mesh of a DGX-1 V100.
    """
    n = capacities.n
    index = mask_index(n)
    cuts = _Cuts(capacities)
    value, limit = _tree_values(capacities, constants, cuts)
    latency = np.full(1 << n, constants.pcie_a)
    rings = np.zeros(1 << n, dtype=np.int16)
    cut = np.zeros(1 << n, dtype=np.int16)
    is_linked = np.zeros(1 << n, dtype=np.bool_)
    if capacities.unit_gbytes_per_s:
        direct = connected_masks(_joined(capacities), n)
        direct = direct[index.size[direct] >= 2]  # noqa: PLR2004 - pairs on
        rings, cut = _mesh(capacities, direct, 1 << n)
        by_ring = rings >= constants.relay_share * cut
        best = capacities.unit_gbytes_per_s * np.maximum(rings, constants.relay_share * cut)
        value[direct], latency[direct] = best[direct], constants.mesh_a
        limit[direct] = np.where(by_ring, Limit.RING, Limit.RELAY)[direct]
        is_linked[direct] = True
    for fabric in capacities.fabrics:
        inside = index.masks[(index.masks & ~fabric.members == 0) & (index.size >= 2)]  # noqa: PLR2004
        gain = np.array([_gain(constants, k, reduces=fabric.reduces) for k in range(n + 1)])
        slowest = _subset_minima(fabric.port_gbytes_per_s)[inside]
        value[inside], latency[inside] = slowest * gain[index.size[inside]], constants.switch_a
        limit[inside] = Limit.SWITCH
        is_linked[inside] = True
    single = index.size < 2  # noqa: PLR2004
    value[single], limit[single], is_linked[single] = 0.0, Limit.NOTHING, True
    return ValueTable(value, latency, limit, rings, cut, is_linked)


def at_message_size(
    value: NDArray[np.float64], latency: NDArray[np.float64], message_bytes: int
) -> NDArray[np.float64]:
    """B(M) from B_inf, both GB/s, by the start-up cost `latency` (s/GB, per 16 MiB)."""
    scaled = latency * (FITTED_MESSAGE_BYTES / message_bytes)
    return value / (1 + scaled * value)


def _gain(constants: ModelConstants, k: int, *, reduces: bool) -> float:
    gains = constants.in_switch_gain
    return gains[min(max(k, 2) - 2, len(gains) - 1)] if reduces else 1.0


def _joined(capacities: Capacities) -> list[int]:
    """For each GPU the mask of its direct neighbours."""
    return [sum(1 << j for j, u in enumerate(row) if u) for row in capacities.units]


def _mesh(
    capacities: Capacities, masks: NDArray[np.int64], length: int
) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Rings of data and minimum cut of the given masks, in tables over all masks."""
    units = np.asarray(capacities.units, dtype=np.int64)
    rings = np.zeros(length, dtype=np.int16)
    cut = np.zeros(length, dtype=np.int16)
    cut[masks] = minimum_cuts(units, masks)
    sizes = mask_index(capacities.n).size[masks]
    pairs = masks[sizes == 2]  # noqa: PLR2004
    rings[pairs] = cut[pairs]
    repeated = _repeatable_rings(capacities)
    wide = masks[(repeated[masks] > 0) & (sizes > 2)]  # noqa: PLR2004
    rings[wide] = 2 * np.minimum(repeated[wide], cut[wide] // 2)
    packed: dict[tuple[tuple[int, ...], ...], int] = {}
    for mask in wide[2 * (cut[wide] // 2) > rings[wide]].tolist():
        # The cut leaves room for more than one ring repeated: search for different ones.
        pattern = _pattern(capacities.units, mask)
        if pattern not in packed:
            packed[pattern] = pack_rings(pattern, int(cut[mask]) // 2, at_least=int(rings[mask]) // 2)
        rings[mask] = 2 * packed[pattern]
    return rings, cut


def _repeatable_rings(capacities: Capacities) -> NDArray[np.int16]:
    """How often one and the same closed ring can be used, for every mask: its narrowest link."""
    n = capacities.n
    repeated = np.zeros(1 << n, dtype=np.int16)
    for width in sorted({u for row in capacities.units for u in row if u}):
        joined = [sum(1 << j for j, u in enumerate(row) if u >= width) for row in capacities.units]
        repeated[closed_ring_ends(joined, n)] = width
    return repeated


def _pattern(units: tuple[tuple[int, ...], ...], mask: int) -> tuple[tuple[int, ...], ...]:
    """The multigraph that a mask induces, members ordered by their links, so that like sets meet."""
    members = gpus_of(mask)
    ordered = sorted(members, key=lambda i: sorted([units[i][j] for j in members]))
    return tuple(tuple(units[i][j] for j in ordered) for i in ordered)


def _tree_values(
    capacities: Capacities, constants: ModelConstants, cuts: _Cuts
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """The least PCIe cut of every mask (rule 3), as if no set were linked."""
    n = capacities.n
    masks = cuts.masks
    share = 1.0 if capacities.is_p2p else constants.staging_share
    ports = tuple(share * port for port in capacities.port_gbytes_per_s)
    value = np.full(1 << n, np.inf)
    limit = np.full(1 << n, Limit.PORT, dtype=np.int8)
    for i in range(n):
        own = masks[masks >> i & 1 == 1]
        value[own] = np.minimum(value[own], ports[i] + cuts.crossing(1 << i, own))
    port_sums = _subset_sums(ports)
    sockets = _subset_unions(_peers(n, capacities.socket_groups))
    between = min((rate for _, rate in capacities.socket_groups), default=np.inf)
    rest, owner = masks, masks
    while len(rest):
        island = cuts.island[rest]
        partial = np.flatnonzero(island != owner)
        alone, whole = island[partial], owner[partial]
        leaves = (sockets[alone] & whole & ~alone) == 0
        carried = np.where(leaves, np.minimum(port_sums[alone], between), port_sums[alone])
        less = carried < value[whole]
        value[whole[less]] = carried[less]
        limit[whole[less]] = np.where(leaves, Limit.SOCKET, Limit.PORT)[less]
        rest = rest ^ island
        rest, owner = rest[rest > 0], owner[rest > 0]
    for group, uplink in capacities.switch_groups:
        if capacities.is_p2p:
            _lower(value, limit, cuts, group, uplink, Limit.UPLINK)
        else:
            _share(value, limit, cuts, group, uplink * share)
    for group, socket in capacities.socket_groups:
        _lower(value, limit, cuts, group, socket, Limit.SOCKET)
    return value, limit


def _lower(
    value: NDArray[np.float64],
    limit: NDArray[np.int8],
    cuts: _Cuts,
    group: int,
    capacity: float,
    kind: Limit,
) -> None:
    """Lower the masks that cross an edge of the tree to what the edge carries."""
    across = cuts.masks[(cuts.masks & group > 0) & (cuts.masks & ~group > 0)]
    carried = capacity + cuts.crossing(group, across)
    less = carried < value[across]
    value[across[less]] = carried[less]
    limit[across[less]] = kind


def _share(
    value: NDArray[np.float64],
    limit: NDArray[np.int8],
    cuts: _Cuts,
    group: int,
    uplink: float,
) -> None:
    """Without P2P the islands below one switch share its uplink, even inside the switch."""
    below = cuts.masks & group
    islands = np.zeros(len(below), dtype=np.int64)
    rest = below
    while rest.any():
        islands += rest > 0
        rest = rest ^ cuts.island[rest]
    shared = np.flatnonzero(islands > 1)
    carried = uplink / islands[shared]
    less = carried < value[shared]
    value[shared[less]] = carried[less]
    limit[shared[less]] = Limit.UPLINK


def set_value(
    capacities: Capacities, mask: int, constants: ModelConstants = DEFAULT_CONSTANTS
) -> SetValue:
    """Value one set of a node of any size, B_inf in GB/s; the rules of this module, one by one.

    The tables follow the same rules for every mask at once; this is their definition, and what
    nodes of more than 16 devices use. Bounded by `MAX_PACKING_STEPS` and O(k^3).
    """
    members = gpus_of(mask)
    if len(members) < 2:  # noqa: PLR2004 - nothing to reduce
        return SetValue(0.0, Limit.NOTHING, 0, 0)
    for fabric in capacities.fabrics:
        if mask & ~fabric.members == 0:
            gain = _gain(constants, len(members), reduces=fabric.reduces)
            slowest = min(fabric.port_gbytes_per_s[i] for i in members)
            return SetValue(slowest * gain, Limit.SWITCH, 0, 0)
    units = [[capacities.units[i][j] for j in members] for i in members]
    cut = _cut_of(units)
    if cut:
        rings = cut if len(members) == 2 else 2 * pack_rings(units, cut // 2)  # noqa: PLR2004
        relayed = constants.relay_share * cut
        kind = Limit.RING if rings >= relayed else Limit.RELAY
        return SetValue(capacities.unit_gbytes_per_s * max(rings, relayed), kind, rings, cut)
    value, kind = min(_tree_cuts(capacities, constants, mask), key=lambda found: found[0])
    return SetValue(value, kind, 0, 0)


def _cut_of(units: list[list[int]]) -> int:
    """Minimum cut of a multigraph of any size; 0 where it is not connected."""
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
    peers = _peers(capacities.n, capacities.socket_groups)
    between = min((rate for _, rate in capacities.socket_groups), default=np.inf)
    islands = _islands_of(capacities, mask)
    for island in islands if len(islands) > 1 else ():
        own = sum(ports[i] for i in gpus_of(island))
        near = any(peers[i] & mask & ~island for i in gpus_of(island))
        yield (own, Limit.PORT) if near else (min(own, between), Limit.SOCKET)
    for group, uplink in capacities.switch_groups:
        if capacities.is_p2p:
            if mask & group and mask & ~group:
                yield uplink + _crossing(capacities, group, mask), Limit.UPLINK
        elif (below := len(_islands_of(capacities, mask & group))) > 1:
            yield uplink * share / below, Limit.UPLINK
    for group, socket in capacities.socket_groups:
        if mask & group and mask & ~group:
            yield socket + _crossing(capacities, group, mask), Limit.SOCKET


def _islands_of(capacities: Capacities, mask: int) -> list[int]:
    islands = []
    while mask:
        island = frontier = mask & -mask
        while frontier:
            i = (frontier & -frontier).bit_length() - 1
            frontier &= frontier - 1
            reached = capacities.adjacency[i] & mask & ~island
            island |= reached
            frontier |= reached
        islands.append(island)
        mask &= ~island
    return islands


def _crossing(capacities: Capacities, group: int, mask: int) -> float:
    inner, outer = gpus_of(mask & group), gpus_of(mask & ~group)
    unit = capacities.unit_gbytes_per_s
    total = sum(unit * capacities.units[i][j] for i in inner for j in outer)
    for fabric in capacities.fabrics:
        port = fabric.port_gbytes_per_s
        total += min(sum(port[i] for i in inner), sum(port[j] for j in outer))
    return total
