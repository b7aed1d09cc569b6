"""Which GPUs are nearest to a network port, where some levels are unknown.

What it answers: the GPUs at the least level of a NIC, or that they are not known. An unknown level
ranks neither near nor far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topology.model.node_topology import PcieLevel

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NearestGpus", "known_level", "nearest_gpus"]


class NearestGpus(NamedTuple):
    """The GPUs nearest to a NIC by their level; UNKNOWN where one of another level may be nearer.

    Then `gpus` are those at its NUMA node, if any is known to be there.
    """

    level: PcieLevel
    gpus: tuple[int, ...]


def nearest_gpus(
    levels: Sequence[PcieLevel], numa_node: int | None, numa_nodes: Sequence[int | None]
) -> NearestGpus:
    """Those of a NIC with these levels to the GPUs, which are at `numa_nodes`.

    >>> nearest_gpus((PcieLevel.UNKNOWN, PcieLevel.SYS), None, (0, 1))
    NearestGpus(level=<PcieLevel.UNKNOWN: '?'>, gpus=())
    """
    known = [
        known_level(level, numa_node, other)
        for level, other in zip(levels, numa_nodes, strict=True)
    ]
    best = min(known, key=lambda level: level.rank)
    if best is not PcieLevel.PIX and PcieLevel.UNKNOWN in known:
        beside = (i for i, other in enumerate(numa_nodes) if other == numa_node is not None)
        return NearestGpus(PcieLevel.UNKNOWN, tuple(beside))
    return NearestGpus(best, tuple(i for i, level in enumerate(known) if level is best))


def known_level(level: PcieLevel, numa_node: int | None, other: int | None) -> PcieLevel:
    """An unknown level may be any, but that between two NUMA nodes is SYS by definition."""
    is_apart = numa_node is not None and other is not None and numa_node != other
    return PcieLevel.SYS if level is PcieLevel.UNKNOWN and is_apart else level
