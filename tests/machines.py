"""Small machines written down in a line: only what a test is about, the rest absent or unknown."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from topology.model import (
    NO_LINK,
    AcceleratorLink,
    CpuPlatform,
    Gpu,
    LinkKind,
    NodeTopology,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
)
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NVLINK", "direct_mesh", "machine", "pairs", "relabelled"]

T = TypeVar("T")


def NVLINK(n_links: int | None) -> AcceleratorLink:  # noqa: N802 - reads like the label it stands for
    """NVLinks between two GPUs."""
    return AcceleratorLink(LinkKind.NVLINK, n_links)


def machine(
    gpus: Sequence[Gpu],
    *,
    links: Mapping[tuple[int, int], AcceleratorLink] | None = None,
    levels: Mapping[tuple[int, int] | str, PcieLevel] | None = None,
    fabrics: Sequence[SwitchFabric] = (),
    p2p: P2pAccess = P2pAccess.UNKNOWN,
    cpu: CpuPlatform = CpuPlatform.UNKNOWN,
    measurement: Measurement | None = None,
) -> NodeTopology:
    """Make a node; pairs not named have no link, and the level of `levels["else"]` or unknown.

    Pairs of an up fabric get the lesser of their port counts.
    """
    n = len(gpus)
    link = [[NO_LINK] * n for _ in range(n)]
    level = [[PcieLevel.UNKNOWN] * n for _ in range(n)]
    for fabric in fabrics:
        for (i, n_i), (j, n_j) in combinations(fabric.ports, 2):
            if fabric.is_up and min(n_i, n_j):
                link[i][j] = link[j][i] = AcceleratorLink(fabric.kind, min(n_i, n_j))
    for (i, j), direct in (links or {}).items():
        link[i][j] = link[j][i] = direct
    levels = levels or {}
    for i, j in combinations(range(n), 2):
        level[i][j] = level[j][i] = levels.get((i, j), levels.get("else", PcieLevel.UNKNOWN))
    for i in range(n):
        level[i][i] = PcieLevel.SELF
    return NodeTopology(
        gpus=tuple(gpus),
        links=tuple(map(tuple, link)),
        pcie=tuple(map(tuple, level)),
        fabrics=tuple(fabrics),
        p2p=p2p,
        cpu=cpu,
        measurement=measurement,
    )


def direct_mesh(gpu: Gpu, units: Sequence[Sequence[int]]) -> NodeTopology:
    """Make a node of like GPUs whose NVLinks are the given counts, PCIe unknown."""
    n = len(units)
    links = {(i, j): NVLINK(units[i][j]) for i, j in combinations(range(n), 2) if units[i][j]}
    return machine([gpu] * n, links=links)


def relabelled(topology: NodeTopology, order: Sequence[int]) -> NodeTopology:
    """Renumber a node's GPUs: the new GPU k is the old GPU `order[k]`."""
    new = {old: k for k, old in enumerate(order)}

    def moved(gpus: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(new[gpu] for gpu in gpus))

    measurement = topology.measurement
    if measurement is not None:
        pairs = [(moved((p.first, p.second)), p.bandwidth_gbytes_per_s) for p in measurement.pairs]
        sets = [(moved(s.gpus), s.bandwidth_gbytes_per_s) for s in measurement.sets]
        measurement = replace(
            measurement,
            pairs=tuple(MeasuredPair(gpus[0], gpus[1], figure) for gpus, figure in pairs),
            sets=tuple(MeasuredSet(gpus, figure) for gpus, figure in sets),
        )
    return replace(
        topology,
        gpus=tuple(topology.gpus[i] for i in order),
        links=tuple(tuple(topology.links[i][j] for j in order) for i in order),
        pcie=tuple(tuple(topology.pcie[i][j] for j in order) for i in order),
        nics=tuple(
            replace(nic, levels=tuple(nic.levels[i] for i in order)) for nic in topology.nics
        ),
        fabrics=tuple(
            replace(fabric, ports=tuple(sorted((new[gpu], n) for gpu, n in fabric.ports)))
            for fabric in topology.fabrics
        ),
        measurement=measurement,
    )


def pairs(matrix: Sequence[Sequence[T]]) -> list[T]:
    """The upper triangle of a square matrix, row by row."""
    return [cell for i, row in enumerate(matrix) for cell in row[i + 1 :]]
