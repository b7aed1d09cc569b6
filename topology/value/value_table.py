"""The value of every set of a node of up to 16 GPUs, all at once.

What it answers: what `topology.value.set_value.set_value` says of one set, for all 2**n masks as
arrays. The rules and their sources stand there; tests/unit/topology/value/test_value_table.py
holds the two against each other. It ranks nothing.

Method: tables over masks grow by doubling (the masks with highest member i come from those below);
minimum cuts and closed rings come from `topology.value.ring_packing`, and only sets whose cut
leaves room for more rings than one ring repeated are searched, each pattern of links once. Where
more than `MAX_SEARCHED_SETS` would have to be searched, the cut's own bound stands in for the
packing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from topology.model import DEFAULT_CONSTANTS, gpus_of
from topology.value.limits import BOUND_DECIMALS, TIE_ORDER, Limit, start_up_cost, switch_gain
from topology.value.masks import mask_index
from topology.value.ring_packing import closed_ring_ends, minimum_cuts, pack_rings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.model import ModelConstants
    from topology.value.capacity import Capacities

__all__ = ["ValueTable", "connected_masks", "value_table"]


MAX_SEARCHED_SETS = 1_024
"""Most sets that are searched for different rings; every set of 10 GPUs fits. The doubled 4 x 4
torus has 113. Beyond (dense random meshes of 16 GPUs have tens of thousands, minutes of search)
floor(cut / 2) closed rings are counted wherever one exists: exact on 93 % of the sets of a dense
random graph and on 98 % of a torus, and the same for all numberings of the GPUs."""


@dataclass(frozen=True, slots=True, eq=False)
class ValueTable:
    """Every mask of n GPUs: arrays of length 2**n indexed by mask.

    `value` float64 GB/s without start-up cost (B_inf; 0 for fewer than two members), `latency`
    float64 s/GB (the `a` of its kind of path), `limit` int8 (`Limit`), `rings` and `cut` int16.
    """

    value: NDArray[np.float64]
    latency: NDArray[np.float64]
    limit: NDArray[np.int8]
    rings: NDArray[np.int16]
    cut: NDArray[np.int16]


def value_table(
    capacities: Capacities, constants: ModelConstants = DEFAULT_CONSTANTS
) -> ValueTable:
    """Value every set of a node of up to 16 GPUs, by its labels.

    O(n^3 2^n) word operations; time: `benchmarks speed`.
    """
    n = capacities.n
    linked, rings, cut = _linked_values(capacities, constants)
    is_linked = np.isfinite(linked.value)
    tree = _tree_values(capacities, constants, linked)
    value = np.where(is_linked, linked.value, tree.value)
    limit = np.where(is_linked, linked.limit, tree.limit)
    if _can_pcie_win(capacities, constants, linked.value):
        alone = _tree_values(_without_links(capacities), constants, _nothing(n))
        wins = alone.value > value
        value, limit = np.where(wins, alone.value, value), np.where(wins, alone.limit, limit)
    single = mask_index(n).size < 2  # noqa: PLR2004 - a pair
    value[single], limit[single] = 0.0, Limit.NOTHING
    latency = np.array([start_up_cost(kind, constants) for kind in Limit])[limit]
    return ValueTable(value, latency, limit, rings, cut)


_TIE_RANKS = np.array([TIE_ORDER.index(kind) for kind in Limit])


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """What bounds every mask: GB/s (inf for no bound) and the kind of path, over 2**n masks."""

    value: NDArray[np.float64]
    limit: NDArray[np.int8]

    def lower(
        self, masks: NDArray[np.int64], value: NDArray[np.float64], limit: NDArray[np.int8] | int
    ) -> None:
        """Take a bound over where it is the lesser one; of equal ones the first of `TIE_ORDER`."""
        bound = np.round(value, BOUND_DECIMALS)
        kinds = np.full(len(masks), limit, dtype=np.int8) if isinstance(limit, int) else limit
        known, known_kinds = self.value[masks], self.limit[masks]
        takes = (bound < known) | ((bound == known) & (_TIE_RANKS[kinds] < _TIE_RANKS[known_kinds]))
        self.value[masks[takes]] = bound[takes]
        self.limit[masks[takes]] = kinds[takes]


def _nothing(n: int) -> _Bounds:
    return _Bounds(np.full(1 << n, np.inf), np.full(1 << n, Limit.PORT, dtype=np.int8))


def _linked_values(
    capacities: Capacities, constants: ModelConstants
) -> tuple[_Bounds, NDArray[np.int16], NDArray[np.int16]]:
    """Rules 1 and 2 for the masks that links connect, inf for the others; rings and cuts."""
    n = capacities.n
    index = mask_index(n)
    linked = _nothing(n)
    rings = np.zeros(1 << n, dtype=np.int16)
    cut = np.zeros(1 << n, dtype=np.int16)
    if capacities.unit_gbytes_per_s:
        direct = connected_masks(_joined(capacities), n)
        direct = direct[index.size[direct] >= 2]  # noqa: PLR2004 - a pair
        rings, cut = _mesh(capacities, direct, 1 << n)
        relayed = constants.relay_share * (cut[direct] - (rings[direct] > 0))
        links = np.maximum(rings[direct], relayed)
        linked.value[direct] = capacities.unit_gbytes_per_s * links
        linked.limit[direct] = np.where(rings[direct] >= relayed, Limit.RING, Limit.RELAY)
    for fabric in capacities.fabrics:
        inside = index.masks[(index.masks & ~fabric.members == 0) & (index.size >= 2)]  # noqa: PLR2004 - a pair
        gain = np.array([switch_gain(constants, k, reduces=fabric.reduces) for k in range(n + 1)])
        slowest = _subset_minima(fabric.port_gbytes_per_s)[inside]
        linked.value[inside] = slowest * gain[index.size[inside]]
        linked.limit[inside] = Limit.SWITCH
    return linked, rings, cut


def _can_pcie_win(
    capacities: Capacities, constants: ModelConstants, linked: NDArray[np.float64]
) -> bool:
    """Whether the widest port carries more than the worst set that links connect."""
    share = 1.0 if capacities.is_p2p else constants.staging_share
    return share * max(capacities.port_gbytes_per_s) > float(linked.min())


def _without_links(capacities: Capacities) -> Capacities:
    """The same node as PCIe alone would carry it."""
    nothing = tuple((0,) * capacities.n for _ in range(capacities.n))
    return replace(capacities, units=nothing, adjacency=(0,) * capacities.n, fabrics=())


def _socket_peers(capacities: Capacities) -> list[int]:
    """For each GPU the mask of the GPUs on its socket, itself included."""
    groups = [group for group, _ in capacities.socket_groups]
    return [next(g for g in groups if g >> i & 1) for i in range(capacities.n)]


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
    pairs = masks[sizes == 2]  # noqa: PLR2004 - a pair
    rings[pairs] = cut[pairs]
    repeated = _repeatable_rings(capacities)
    wide = masks[(repeated[masks] > 0) & (sizes > 2)]  # noqa: PLR2004 - a pair
    rings[wide] = 2 * np.minimum(repeated[wide], cut[wide] // 2)
    packed: dict[tuple[tuple[int, ...], ...], int] = {}
    # Where the cut leaves room for more than one ring repeated, different ones are searched for.
    open_sets = wide[2 * (cut[wide] // 2) > rings[wide]]
    if len(open_sets) > MAX_SEARCHED_SETS:
        rings[open_sets] = 2 * (cut[open_sets] // 2)
        return rings, cut
    for mask in open_sets.tolist():
        pattern = _pattern(capacities.units, mask)
        if pattern not in packed:
            known = int(rings[mask]) // 2
            packed[pattern] = pack_rings(pattern, int(cut[mask]) // 2, at_least=known)
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
    """The multigraph that a mask induces, members ordered by their links: like sets meet."""
    members = gpus_of(mask)
    ordered = sorted(members, key=lambda i: sorted([units[i][j] for j in members]))
    return tuple(tuple(units[i][j] for j in ordered) for i in ordered)


def _tree_values(capacities: Capacities, constants: ModelConstants, linked: _Bounds) -> _Bounds:
    """Rule 3 for every mask: the least PCIe cut, and what the islands carry inside."""
    n = capacities.n
    cuts = _Cuts(capacities)
    masks = cuts.masks
    share = 1.0 if capacities.is_p2p else constants.staging_share
    ports = tuple(share * port for port in capacities.port_gbytes_per_s)
    tree = _nothing(n)
    for i in range(n):
        own = masks[masks >> i & 1 == 1]
        tree.lower(own, ports[i] + cuts.crossing(1 << i, own), Limit.PORT)
    port_sums = _subset_sums(ports)
    sockets = _subset_unions(_socket_peers(capacities))
    between = min((rate for _, rate in capacities.socket_groups), default=np.inf)
    rest, owner = masks, masks
    while len(rest):
        island = cuts.island[rest]
        partial = np.flatnonzero(island != owner)
        alone, whole = island[partial], owner[partial]
        tree.lower(whole, port_sums[alone], Limit.PORT)
        leaving = np.flatnonzero((sockets[alone] & whole & ~alone) == 0)
        tree.lower(whole[leaving], np.full(len(leaving), between), Limit.SOCKET)
        tree.lower(whole, linked.value[alone], linked.limit[alone])
        rest = rest ^ island
        rest, owner = rest[rest > 0], owner[rest > 0]
    uplink_of = _crossing_edge if capacities.is_p2p else _sharing_uplink
    for group, uplink in capacities.switch_groups:
        tree.lower(*uplink_of(cuts, group, share * uplink), Limit.UPLINK)
    for group, socket in capacities.socket_groups:
        tree.lower(*_crossing_edge(cuts, group, socket), Limit.SOCKET)
    return tree


def _crossing_edge(
    cuts: _Cuts, group: int, capacity: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The masks on both sides of an edge of the tree, and what crosses with the links' help."""
    across = cuts.masks[(cuts.masks & group > 0) & (cuts.masks & ~group > 0)]
    return across, capacity + cuts.crossing(group, across)


def _sharing_uplink(
    cuts: _Cuts, group: int, uplink: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Without P2P the islands below one switch share its uplink, even inside the switch."""
    below = cuts.masks & group
    islands = np.zeros(len(below), dtype=np.int64)
    rest = below
    while rest.any():
        islands += rest > 0
        rest = rest ^ cuts.island[rest]
    shared = np.flatnonzero(islands > 1)
    return shared, uplink / islands[shared]


def connected_masks(joined: Sequence[int], n: int) -> NDArray[np.int64]:
    """The masks of n GPUs that a graph connects; `joined[i]` is the mask of i's neighbours.

    The empty mask and single GPUs are connected.

    >>> connected_masks([0b010, 0b101, 0b010], 3).tolist()
    [0, 1, 2, 3, 4, 6, 7]
    """
    masks = mask_index(n).masks
    connected: NDArray[np.int64] = masks[_islands(masks, _subset_unions(joined)) == masks]
    return connected


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
        total: NDArray[np.float64] = self._inside[masks] - self._inside[inner] - self._inside[outer]
        for ports in self._ports:
            total = total + np.minimum(ports[inner], ports[outer])
        return total


def _islands(masks: NDArray[np.int64], neighbours: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each mask the members that links inside it connect to its lowest member."""
    reached = masks & -masks
    while True:
        wider = (reached | neighbours[reached]) & masks
        if np.array_equal(wider, reached):
            return reached
        reached = wider


_Step = Callable[[int, NDArray[np.float64]], NDArray[np.float64]]


def _doubled(n: int, start: float, step: _Step) -> NDArray[np.float64]:
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
