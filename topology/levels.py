"""Which sets of a machine have an affinity level, and which might.

What it answers: for every mask of up to 16 GPUs whether `nvlink`, `switch` or `numa` holds
(`affinity_level`), and whether it would if everything unknown turned out well (`possible_level`);
the difference tells "never on this node" from "unknown". It chooses nothing.

Method of `possible_level`: unknown links count as up; a set is possible below one switch, or on one
NUMA node, where no pair of it is known to be apart. Computed only where a required level fails,
once for each machine type and level.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from topology.masks import mask_index
from topology.model import PcieLevel
from topology.policy import Affinity
from topology.value_table import connected_masks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from topology.model import NodeTopology
    from topology.tables import MachineTables

__all__ = ["affinity_level", "possible_level"]


def affinity_level(tables: MachineTables, affinity: Affinity) -> NDArray[np.bool_] | None:
    """Which masks have an affinity level; None for `any` and `none`, which ask for no level."""
    return {
        Affinity.NVLINK: tables.is_linked,
        Affinity.SWITCH: tables.is_switch,
        Affinity.NUMA: tables.is_numa,
    }.get(affinity)


@lru_cache(maxsize=256)
def possible_level(tables: MachineTables, affinity: Affinity) -> NDArray[np.bool_]:
    """Which masks have `nvlink`, `switch` or `numa`, or would if the unknown turned out well."""
    topology, n = tables.topology, tables.n_gpus
    if affinity is Affinity.NVLINK:
        maybe = _rows(
            n, lambda i, j: topology.links[i][j].is_up or not topology.links[i][j].is_known
        )
        possible = np.zeros(1 << n, dtype=np.bool_)
        possible[connected_masks(maybe, n)] = True
        return possible
    apart = _is_apart_from_switch if affinity is Affinity.SWITCH else _is_apart_from_socket
    rows = _rows(n, lambda i, j: apart(topology, i, j))
    holds = tables.is_switch if affinity is Affinity.SWITCH else tables.is_numa
    masks = mask_index(n).masks
    is_apart = np.zeros(1 << n, dtype=np.bool_)
    for i, row in enumerate(rows):
        is_apart |= (masks >> i & 1 == 1) & (masks & row != 0)
    return holds | ~is_apart


def _rows(n: int, holds: Callable[[int, int], bool]) -> list[int]:
    return [sum(1 << j for j in range(n) if j != i and holds(i, j)) for i in range(n)]


def _is_apart_from_switch(topology: NodeTopology, i: int, j: int) -> bool:
    return PcieLevel.PXB.rank < topology.pcie[i][j].rank < PcieLevel.UNKNOWN.rank


def _is_apart_from_socket(topology: NodeTopology, i: int, j: int) -> bool:
    one, other = topology.gpus[i].numa_node, topology.gpus[j].numa_node
    are_told = one is not None and other is not None
    return topology.pcie[i][j] is PcieLevel.SYS or (are_told and one != other)
