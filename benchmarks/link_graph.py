"""Whether NVLink or XGMI connects a set of GPUs.

The method is independent of the product's tables of bit masks: connected components of a networkx
graph. A direct link is an edge between two GPUs; an NVSwitch fabric that is up is a vertex of its
own, joined to each member that has up links.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import networkx as nx

from topology.errors import UnknownDevice

if TYPE_CHECKING:
    from collections.abc import Collection

    from topology.model import NodeTopology

__all__ = ["is_link_connected"]

Vertex = int | str


def is_link_connected(topology: NodeTopology, gpus: Collection[int]) -> bool:
    """Whether up links among these GPUs alone (and fabrics) join all of them; true for 0 or 1 GPU.

    Raises `UnknownDevice` for a GPU that the node does not have.
    """
    unknown = sorted(set(gpus) - set(range(topology.n_gpus)))
    if unknown:
        msg = f"GPU {unknown[0]} is not there, expected 0..{topology.n_gpus - 1}"
        raise UnknownDevice(msg)
    graph = _link_graph(topology)
    kept = graph.subgraph(v for v in graph if isinstance(v, str) or v in set(gpus))
    parts = [
        part for part in nx.connected_components(kept) if any(isinstance(v, int) for v in part)
    ]
    return len(parts) <= 1


def _link_graph(topology: NodeTopology) -> nx.Graph[Vertex]:
    """Vertices are GPU indices and one `"fabric<k>"` for each fabric that is up."""
    graph: nx.Graph[Vertex] = nx.Graph()
    graph.add_nodes_from(range(topology.n_gpus))
    switched: set[tuple[int, int]] = set()
    for k, fabric in enumerate(topology.fabrics):
        switched.update(combinations((gpu for gpu, _ in fabric.ports), 2))
        if fabric.is_up:
            graph.add_edges_from((gpu, f"fabric{k}") for gpu, n_links in fabric.ports if n_links)
    for i, j in combinations(range(topology.n_gpus), 2):
        if topology.links[i][j].is_up and (i, j) not in switched:
            graph.add_edge(i, j)
    return graph
