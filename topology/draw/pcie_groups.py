"""Which GPUs share a PCIe switch, root or socket, also where a level is hidden.

What it answers: the groups of GPUs that are surely within a level of each other, for the drawing.

Method: PCIe is a tree, hence of the levels of three devices the two farthest are equal: level(i, j)
<= max(level(i, k), level(k, j)) for any GPU or NIC k (an ultrametric; nvml.h,
nvmlGpuTopologyLevel_t). A level that was not recorded is thereby bounded by those that were.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from topology.model import PcieLevel
from topology.value import gpus_of, islands_of

if TYPE_CHECKING:
    from topology.model import NodeTopology

__all__ = ["pcie_groups"]


def pcie_groups(topology: NodeTopology, level: PcieLevel) -> tuple[tuple[int, ...], ...]:
    """Groups of GPUs that are surely within `level` of each other, in order of their first GPU.

    >>> from topology.recordings import load_recording
    >>> pcie_groups(load_recording("8x-a6000-bridged"), PcieLevel.PXB)
    ((0, 1, 2, 3), (4, 5, 6, 7))
    """
    n = topology.n_gpus
    joined = [0] * (n + len(topology.nics))
    gpu_pairs = [(i, j, topology.pcie[i][j]) for i, j in combinations(range(n), 2)]
    nic_pairs = [
        (i, k, found)
        for k, nic in enumerate(topology.nics, start=n)
        for i, found in enumerate(nic.levels)
    ]
    for i, j, found in gpu_pairs + nic_pairs:
        if found.rank <= level.rank < PcieLevel.UNKNOWN.rank:
            joined[i] |= 1 << j
            joined[j] |= 1 << i
    gpus = (1 << n) - 1
    parts = islands_of(joined, (1 << len(joined)) - 1)
    return tuple(gpus_of(part & gpus) for part in parts if part & gpus)
