"""A node as a networkx graph: what is joined to what by accelerator links, and its PCIe tree.

What it answers: which GPUs NVLink or XGMI connects, whether a set of GPUs hangs together, and
which GPUs share a PCIe switch, root or socket, also where a level is hidden. It stands beside the
bit-mask tables as an independent check and serves drawing; it never answers a request.

Method: a direct link is an edge between two GPUs; an NVSwitch fabric that is up is a vertex of its
own, joined to each member by its up links, so that no pair is counted twice. PCIe is a tree, hence
of the levels of three devices the two farthest are equal: level(i, j) <= max(level(i, k),
level(k, j)) for any GPU or NIC k (an ultrametric; nvml.h, nvmlGpuTopologyLevel_t). A level that
the source does not record is thereby bounded by those that are recorded.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import networkx as nx

from topology.errors import UnknownDevice
from topology.model.node_topology import PcieLevel

if TYPE_CHECKING:
    from collections.abc import Collection

    from topology.model.node_topology import NodeTopology

__all__ = ["is_link_connected", "link_components", "pcie_bounds", "pcie_groups", "to_graph"]

Vertex = int | str
_KNOWN_LEVELS = tuple(
    level for level in PcieLevel if level not in {PcieLevel.SELF, PcieLevel.UNKNOWN}
)


def to_graph(topology: NodeTopology) -> nx.Graph[Vertex]:
    """Build the graph of up accelerator links.

    Vertices: GPU indices (attributes `kind="gpu"`, `model`, `numa_node`) and one `"fabric<k>"` for
    each fabric that is up (`kind="fabric"`). Edges carry `kind` and `n_links`, which is None where
    the count is unknown.
    """
    graph: nx.Graph[Vertex] = nx.Graph()
    for i, gpu in enumerate(topology.gpus):
        graph.add_node(i, kind="gpu", model=gpu.model, numa_node=gpu.numa_node)
    switched: set[tuple[int, int]] = set()
    for k, fabric in enumerate(topology.fabrics):
        switched.update(combinations((gpu for gpu, _ in fabric.ports), 2))
        if not fabric.is_up:
            continue
        graph.add_node(f"fabric{k}", kind="fabric")
        for member, n_links in fabric.ports:
            if n_links:
                graph.add_edge(member, f"fabric{k}", kind=fabric.kind.value, n_links=n_links)
    for i, j in combinations(range(topology.n_gpus), 2):
        link = topology.links[i][j]
        if link.is_up and (i, j) not in switched:
            graph.add_edge(i, j, kind=link.kind.value, n_links=link.n_links)
    return graph


def link_components(topology: NodeTopology) -> tuple[tuple[int, ...], ...]:
    """Groups of GPUs that up accelerator links join, each ascending, in order of their first GPU.

    >>> from topology.recordings import load_recording
    >>> link_components(load_recording("summit"))
    ((0, 1, 2), (3, 4, 5))
    """
    graph = to_graph(topology)
    groups = [
        tuple(sorted(vertex for vertex in part if isinstance(vertex, int)))
        for part in nx.connected_components(graph)
    ]
    return tuple(sorted(group for group in groups if group))


def is_link_connected(topology: NodeTopology, gpus: Collection[int]) -> bool:
    """Whether up links among these GPUs alone (and fabrics) join all of them; true for 0 or 1 GPU.

    Raises `UnknownDevice` for a GPU that the node does not have.
    """
    strangers = sorted(set(gpus) - set(range(topology.n_gpus)))
    if strangers:
        msg = f"GPU {strangers[0]} is not there, expected 0..{topology.n_gpus - 1}"
        raise UnknownDevice(msg)
    graph = to_graph(topology)
    kept = graph.subgraph(v for v in graph if isinstance(v, str) or v in set(gpus))
    parts = [
        part for part in nx.connected_components(kept) if any(isinstance(v, int) for v in part)
    ]
    return len(parts) <= 1


def pcie_groups(topology: NodeTopology, level: PcieLevel) -> tuple[tuple[int, ...], ...]:
    """Groups of GPUs that are surely within `level` of each other, in order of their first GPU.

    >>> from topology.recordings import load_recording
    >>> pcie_groups(load_recording("8x-a6000-bridged"), PcieLevel.PXB)
    ((0, 1, 2, 3), (4, 5, 6, 7))
    """
    graph: nx.Graph[Vertex] = nx.Graph()
    graph.add_nodes_from(range(topology.n_gpus))
    for i, j in combinations(range(topology.n_gpus), 2):
        if topology.pcie[i][j].rank <= level.rank < PcieLevel.UNKNOWN.rank:
            graph.add_edge(i, j)
    for k, nic in enumerate(topology.nics):
        for i, nic_level in enumerate(nic.levels):
            if nic_level.rank <= level.rank < PcieLevel.UNKNOWN.rank:
                graph.add_edge(i, f"nic{k}")
    parts = nx.connected_components(graph)
    return tuple(sorted(tuple(sorted(v for v in part if isinstance(v, int))) for part in parts))


def pcie_bounds(topology: NodeTopology) -> tuple[tuple[PcieLevel, ...], ...]:
    """Farthest level that each pair of GPUs can have, n x n; UNKNOWN where nothing bounds it.

    Equal to the recorded level where one is recorded and the recording is a tree.
    """
    n = topology.n_gpus
    bounds = [[PcieLevel.UNKNOWN] * n for _ in range(n)]
    for i in range(n):
        bounds[i][i] = PcieLevel.SELF
    for level in _KNOWN_LEVELS:
        for group in pcie_groups(topology, level):
            for i, j in combinations(group, 2):
                if bounds[i][j] is PcieLevel.UNKNOWN:
                    bounds[i][j] = bounds[j][i] = level
    return tuple(tuple(row) for row in bounds)
