"""Which sets of a machine have an affinity level, and which might.

What it answers: for every mask of up to 16 GPUs whether `nvlink`, `pcie-switch` or `numa` holds
(`affinity_level`), and whether it would if all unknowns were favourable (`possible_level`);
the difference is what separates "never on this node" from "unknown". It chooses nothing.

Method of `possible_level`: unknown links count as up; a set is possible below one switch, or on one
NUMA node, where no pair of it is known to be apart. Computed only where a required level fails,
once for each machine type and level.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from topology.annotations import Affinity
from topology.model import PcieLevel
from topology.value import connected_masks, mask_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.model import NodeTopology
    from topology.select.tables import MachineTables

__all__ = ["affinity_level", "possible_level", "possible_neighbours"]


def affinity_level(tables: MachineTables, affinity: Affinity) -> NDArray[np.bool_] | None:
    """Which masks have an affinity level; None for `any` and `none`, which request no level."""
    if affinity is Affinity.NVLINK:
        return tables.is_linked
    if affinity is Affinity.PCIE_SWITCH:
        return tables.is_switch
    return tables.is_numa if affinity is Affinity.NUMA else None


@lru_cache(maxsize=256)
def possible_level(tables: MachineTables, affinity: Affinity) -> NDArray[np.bool_]:
    """Which masks have a level, or would if the unknowns were favourable."""
    n = tables.n_gpus
    rows = possible_neighbours(tables.topology, affinity)
    if affinity is Affinity.NVLINK:
        possible = np.zeros(1 << n, dtype=np.bool_)
        possible[connected_masks(rows, n)] = True
        return possible
    masks = mask_index(n).masks
    is_apart = np.zeros(1 << n, dtype=np.bool_)
    for i, row in enumerate(rows):
        is_apart |= (masks >> i & 1 == 1) & (masks & ~(row | 1 << i) != 0)
    return (tables.is_switch if affinity is Affinity.PCIE_SWITCH else tables.is_numa) | ~is_apart


def possible_neighbours(topology: NodeTopology, affinity: Affinity) -> list[int]:
    """For each GPU the mask of those that have the level with it, or might."""
    is_possible = {
        Affinity.NVLINK: _may_be_linked,
        Affinity.PCIE_SWITCH: _may_share_switch,
        Affinity.NUMA: _may_share_socket,
    }[affinity]
    every = range(topology.n_gpus)
    return [sum(1 << j for j in every if j != i and is_possible(topology, i, j)) for i in every]


def _may_be_linked(topology: NodeTopology, i: int, j: int) -> bool:
    return topology.links[i][j].is_up or not topology.links[i][j].is_known


def _may_share_switch(topology: NodeTopology, i: int, j: int) -> bool:
    level = topology.pcie[i][j]
    return level.rank <= PcieLevel.PXB.rank or level is PcieLevel.UNKNOWN


def _may_share_socket(topology: NodeTopology, i: int, j: int) -> bool:
    one, other = topology.gpus[i].numa_node, topology.gpus[j].numa_node
    if one is not None and other is not None:
        return one == other
    return topology.pcie[i][j] is not PcieLevel.SYS
