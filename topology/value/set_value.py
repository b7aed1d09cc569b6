"""What a set of GPUs is worth: NCCL all-reduce bus bandwidth in GB/s, from the node's graph.

What it answers: for one set, the bandwidth that an all-reduce over it can be expected to reach with
large messages and idle neighbours, and what limits it. One figure, in GB/s, for ranking, for
`min-bandwidth` and for people. It claims nothing for all-to-all, nor for latency-bound inference.

This is the definition. `topology.value.value_table` is its fast form, which requests read, for all
sets of a node of up to 16 GPUs; a test holds the two equal. Here the graph is walked.

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
   what the links carry inside it), one switch (its uplink), one socket (its link). Without P2P,
   traffic is staged through host memory: a GPU's port gives `staging_share`, and the islands below
   one switch share its uplink.

PCIe alone, without any link, is a lower bound: a dying link must not make a set worth less than
none would. Source: facts measured on BandPilot's V100, A6000 and H100 nodes; `benchmarks fidelity`
reports how far the value is off, by limit. A single GPU has no all-reduce: its value is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import networkx as nx

from topology.model import DEFAULT_CONSTANTS, MAX_TABLE_GPUS
from topology.value.limits import BOUND_DECIMALS, TIE_ORDER, Limit, switch_gain
from topology.value.machine_graph import EdgeKind, Vertex
from topology.value.ring_packing import MAX_PACKING_STEPS, pack_rings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from topology.model import ModelConstants

__all__ = ["SetValue", "set_value"]

_PAIR = 2


@dataclass(frozen=True, slots=True)
class SetValue:
    """The value of one set. `rings` and `cut` count links; 0 where no direct links connect it."""

    value_gbytes_per_s: float
    limit: Limit
    rings: int = 0
    cut: int = 0


def set_value(
    graph: nx.Graph[Vertex], gpus: Iterable[int], constants: ModelConstants = DEFAULT_CONSTANTS
) -> SetValue:
    """Value one set of a node of any size, B_inf in GB/s; `graph` is made with the same constants.

    Bounded by `MAX_PACKING_STEPS` and O(k^3).

    >>> from topology.recordings import load_recording
    >>> from topology.value.machine_graph import machine_graph
    >>> set_value(machine_graph(load_recording("dgx-1-v100")), (0, 1, 2, 3))
    SetValue(value_gbytes_per_s=100.0, limit=<Limit.RING: 2>, rings=4, cut=4)
    """
    members = frozenset(gpus)
    if len(members) < _PAIR:
        return SetValue(0.0, Limit.NOTHING)
    # A set of a large node is rated for itself: it gets a part of the steps, which is still more
    # than any recorded mesh of eight GPUs takes.
    max_steps = MAX_PACKING_STEPS // (1 if MAX_TABLE_GPUS not in graph else 200)
    carried = partial(_over_links, constants=constants, max_steps=max_steps)
    links = _links_between(graph, members)
    found = carried(links) or _least(_tree_cuts(graph, links, carried))
    bare: nx.Graph[Vertex] = nx.Graph()
    bare.add_nodes_from(members)
    alone = _least(_tree_cuts(graph, bare, carried))
    if alone.value_gbytes_per_s > found.value_gbytes_per_s:
        return replace(found, value_gbytes_per_s=alone.value_gbytes_per_s, limit=alone.limit)
    return found


def _links_between(graph: nx.Graph[Vertex], gpus: frozenset[int]) -> nx.Graph[Vertex]:
    """The accelerator links inside a set: between its GPUs, and from them to fabrics."""
    links: nx.Graph[Vertex] = nx.Graph()
    links.add_nodes_from(gpus)
    for gpu, other, edge in graph.edges(gpus, data=True):
        if edge["kind"] is EdgeKind.LINK and (other in gpus or isinstance(other, str)):
            links.add_node(other, **graph.nodes[other])
            links.add_edge(gpu, other, **edge)
    return links


def _gpus(vertices: Iterable[Vertex]) -> frozenset[int]:
    return frozenset(vertex for vertex in vertices if isinstance(vertex, int))


def _islands(links: nx.Graph[Vertex], gpus: frozenset[int]) -> list[frozenset[int]]:
    """The parts of a set that links inside it connect, directly or over a fabric."""
    inside = links.subgraph([v for v in links if v in gpus or isinstance(v, str)])
    parts = (_gpus(part) for part in nx.connected_components(inside))
    return [part for part in parts if part]


def _over_links(
    links: nx.Graph[Vertex], *, constants: ModelConstants, max_steps: int
) -> SetValue | None:
    """Rules 1 and 2; None where links do not connect the set, or it is one GPU."""
    members = _gpus(links)
    if len(members) < _PAIR:
        return None
    for fabric in set(links) - members:
        if members <= set(links[fabric]):
            slowest = min(links.edges[fabric, gpu]["gbytes_per_s"] for gpu in members)
            reduces = links.nodes[fabric]["reduces"]
            return SetValue(
                slowest * switch_gain(constants, len(members), reduces=reduces), Limit.SWITCH
            )
    direct = links.subgraph(members)
    if not nx.is_connected(direct):
        return None
    _, _, one = next(iter(direct.edges(data=True)))
    cut = int(nx.stoer_wagner(direct, weight="links")[0])
    if len(members) == _PAIR:
        rings = cut
    else:
        units = [
            [direct.edges[i, j]["links"] if j in direct[i] else 0 for j in sorted(members)]
            for i in sorted(members)
        ]
        rings = 2 * pack_rings(units, cut // 2, max_steps=max_steps)
    relayed = constants.relay_share * (cut - (rings > 0))
    kind = Limit.RING if rings >= relayed else Limit.RELAY
    return SetValue(one["gbytes_per_s"] / one["links"] * max(rings, relayed), kind, rings, cut)


def _least(cuts: Iterable[tuple[float, Limit]]) -> SetValue:
    """The least cut; of equal ones the kind that stands first in `TIE_ORDER`."""
    return min(
        (SetValue(round(carried, BOUND_DECIMALS), kind) for carried, kind in cuts),
        key=lambda found: (found.value_gbytes_per_s, TIE_ORDER.index(found.limit)),
    )


def _tree_cuts(
    graph: nx.Graph[Vertex],
    links: nx.Graph[Vertex],
    carried: Callable[[nx.Graph[Vertex]], SetValue | None],
) -> Iterator[tuple[float, Limit]]:
    """The PCIe cuts of one set (rule 3), each with its kind."""
    members = _gpus(links)
    islands = _islands(links, members)
    tree = [edge for *_, edge in graph.edges(data=True) if "below" in edge]
    sockets = [edge for edge in tree if edge["kind"] is EdgeKind.SOCKET]
    for edge in tree:
        inner, rate = members & edge["below"], edge["gbytes_per_s"]
        if edge["kind"] is EdgeKind.STAGED:
            if (sharing := len(_islands(links, inner))) > 1:
                yield rate / sharing, Limit.UPLINK
        elif inner and inner < members:
            yield rate + _crossing(links, inner), Limit[edge["kind"].name]
    if len(islands) == 1:
        return
    for island in islands:
        ports = (e for e in tree if e["kind"] is EdgeKind.PORT and e["below"] <= island)
        yield sum(port["gbytes_per_s"] for port in ports), Limit.PORT
        # Where the island has its sockets for itself, its PCIe leads over a socket's link.
        if not any(
            edge["below"] & island and edge["below"] & (members - island) for edge in sockets
        ):
            yield min(edge["gbytes_per_s"] for edge in sockets), Limit.SOCKET
        inside = carried(_links_between(graph, island))
        if inside is not None:
            yield inside.value_gbytes_per_s, inside.limit


def _crossing(links: nx.Graph[Vertex], inner: frozenset[int]) -> float:
    """What links carry between a part of a set and the rest of it, GB/s."""
    outer = _gpus(links) - inner
    carried = nx.cut_size(links, inner, outer, weight="gbytes_per_s")
    for fabric in set(links) - inner - outer:
        carried += min(
            nx.cut_size(links, {fabric}, side, weight="gbytes_per_s") for side in (inner, outer)
        )
    return carried
