"""A node as one graph: its GPUs, switches, sockets, fabrics and NICs, and what joins them.

What it answers: which vertices a node has and what each edge carries. The value of a set is defined
on it (`topology.value.set_value`), and drawings take their groups from it. It rates nothing.

Vertices. GPUs are 0..n-1; the others are called by their kind and number, NICs by their name:
`switch 0`, `socket 1`, `fabric 0`, `nic mlx5_0`, and `root`, which joins the sockets.

Edges have a `kind`:

- LINK, between GPUs or from a GPU to a fabric: `links` and `gbytes_per_s` of accelerator links. Of
  GPUs, links of the node's slowest rate: a faster one is several; `MAX_UNITS` at most.
- PORT, UPLINK, STAGED, SOCKET: the PCIe tree. `gbytes_per_s` goes up from the GPUs `below`. Without
  P2P a port carries what staging through host memory leaves of it, and a switch's edge is STAGED:
  what is below it shares that edge, even inside the switch.
- LEVEL, between two GPUs or a GPU and a NIC: their recorded PCIe `level`. A pair that links join
  has it on its LINK. No edge: the level is unknown.

Rates and groups are those of `topology.value.capacity`, which every program reads: this module
loads networkx, and the plugin does without.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import networkx as nx

from topology.model import DEFAULT_CONSTANTS, PcieLevel, gpus_of
from topology.value.capacity import node_capacities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.model import ModelConstants, NodeTopology
    from topology.value.capacity import Capacities

__all__ = ["EdgeKind", "Vertex", "machine_graph"]

Vertex = int | str
"""A GPU by its number, anything else by its name."""


class EdgeKind(Enum):
    """What an edge is."""

    LINK = "link"
    PORT = "port"
    UPLINK = "uplink"
    STAGED = "staged"
    SOCKET = "socket"
    LEVEL = "level"


def machine_graph(
    topology: NodeTopology, constants: ModelConstants = DEFAULT_CONSTANTS
) -> nx.Graph[Vertex]:
    """Make the graph of a node. O(n^2).

    >>> from topology.recordings import load_recording
    >>> graph = machine_graph(load_recording("dgx-1-v100"))
    >>> graph.edges[0, 3]["kind"], graph.edges[0, 3]["links"], graph.edges[0, 3]["gbytes_per_s"]
    (<EdgeKind.LINK: 'link'>, 2, 50.0)
    """
    capacities = node_capacities(topology, constants)
    graph: nx.Graph[Vertex] = nx.Graph()
    graph.add_nodes_from(range(topology.n_gpus))
    _add_levels(graph, topology)
    for i, row in enumerate(capacities.units):
        for j, links in enumerate(row[:i]):
            rate = capacities.unit_gbytes_per_s * links
            if links:
                graph.add_edge(i, j, kind=EdgeKind.LINK, links=links, gbytes_per_s=rate)
    up = [fabric for fabric in topology.fabrics if fabric.is_up]
    for k, (fabric, ports) in enumerate(zip(up, capacities.fabrics, strict=True)):
        graph.add_node(f"fabric {k}", reduces=ports.reduces)
        for i, links in fabric.ports:
            rate = ports.port_gbytes_per_s[i]
            if links:
                graph.add_edge(i, f"fabric {k}", kind=EdgeKind.LINK, links=links, gbytes_per_s=rate)
    _add_tree(graph, capacities, constants)
    return graph


def _add_levels(graph: nx.Graph[Vertex], topology: NodeTopology) -> None:
    rows: list[tuple[Vertex, tuple[PcieLevel, ...]]] = [
        *((i, row[:i]) for i, row in enumerate(topology.pcie)),
        *((f"nic {nic.name}", nic.levels) for nic in topology.nics),
    ]
    for vertex, levels in rows:
        graph.add_node(vertex)
        for j, level in enumerate(levels):
            if level is not PcieLevel.UNKNOWN:
                graph.add_edge(vertex, j, kind=EdgeKind.LEVEL, level=level)


def _add_tree(graph: nx.Graph[Vertex], capacities: Capacities, constants: ModelConstants) -> None:
    """Each part of the tree hangs on the smallest one that holds it; sockets on the root."""
    parts = list(_tree_parts(capacities, constants))
    for place, (vertex, below, kind, rate) in enumerate(parts, start=1):
        above = next((other for other, gpus, *_ in parts[place:] if below <= gpus), "root")
        graph.add_edge(vertex, above, kind=kind, gbytes_per_s=rate, below=below)


def _tree_parts(
    capacities: Capacities, constants: ModelConstants
) -> Iterator[tuple[Vertex, frozenset[int], EdgeKind, float]]:
    """The PCIe tree from its leaves up: vertex, GPUs below, kind and GB/s of the edge upwards."""
    share = 1.0 if capacities.is_p2p else constants.staging_share
    uplink_kind = EdgeKind.UPLINK if capacities.is_p2p else EdgeKind.STAGED
    for i, rate in enumerate(capacities.port_gbytes_per_s):
        yield i, frozenset((i,)), EdgeKind.PORT, share * rate
    for k, (group, rate) in enumerate(capacities.switch_groups):
        yield f"switch {k}", frozenset(gpus_of(group)), uplink_kind, share * rate
    for k, (group, rate) in enumerate(capacities.socket_groups):
        yield f"socket {k}", frozenset(gpus_of(group)), EdgeKind.SOCKET, rate
