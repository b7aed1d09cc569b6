"""A node as a networkx graph: what is joined to what by accelerator links.

Tells whether NVLink or XGMI connects a set of GPUs, independently of the product's tables of bit
masks.

Method: a direct link is an edge between two GPUs; an NVSwitch fabric that is up is a vertex of its
own, joined to each member by its up links, so that no pair is counted twice.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import networkx as nx

from topology.errors import UnknownDevice

if TYPE_CHECKING:
    from collections.abc import Collection

    from topology.model import NodeTopology

__all__ = ["is_link_connected", "to_graph"]

Vertex = int | str


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
