"""Which GPUs share a PCIe switch, root or socket, also where a level is hidden.

What it answers: the groups of GPUs that are surely within a level of each other, for the drawing.

Method: PCIe is a tree, hence of the levels of three devices the two farthest are equal: level(i, j)
<= max(level(i, k), level(k, j)) for any GPU or NIC k (an ultrametric; nvml.h,
nvmlGpuTopologyLevel_t). A level that was not recorded is thereby bounded by those that were.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import networkx as nx

from topology.model import PcieLevel

if TYPE_CHECKING:
    from topology.model import NodeTopology

__all__ = ["pcie_groups"]


def pcie_groups(topology: NodeTopology, level: PcieLevel) -> tuple[tuple[int, ...], ...]:
    """Groups of GPUs that are surely within `level` of each other, in order of their first GPU.

    >>> from topology.recordings import load_recording
    >>> pcie_groups(load_recording("8x-a6000-bridged"), PcieLevel.PXB)
    ((0, 1, 2, 3), (4, 5, 6, 7))
    """
    graph: nx.Graph[int | str] = nx.Graph()
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
