"""What the links of a node can carry: the link multigraph and the PCIe capacity tree, as numbers.

What it answers: for a `NodeTopology`, how many links of what rate join each pair, which GPUs hang
on which up fabric, and which PCIe edges (GPU port, switch uplink, socket link) a set must cross.
It never rates a set (`topology.value.set_value`).

Method. Accelerator links are counted in units of the node's slowest link rate, so that a node of
mixed generations is still one multigraph. PCIe is a tree: thresholding the pair levels at PIX, PXB
and NODE gives nested groups (connected components, so an unknown level is bounded by the known ones
around it: level(i, j) <= max(level(i, k), level(k, j))). A pair whose level stays unknown shares no
switch, and shares a socket only where both NUMA nodes are known and equal. Each group of GPUs has
one edge upwards; the host bridges of one NUMA node are not an edge (no measurement shows one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.model import (
    DEFAULT_CONSTANTS,
    LinkKind,
    P2pAccess,
    PcieLevel,
    find_gpu_model,
    islands_of,
    link_rate,
    pcie_rate,
    socket_rate,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.model import GpuModel, ModelConstants, NodeTopology

__all__ = ["Capacities", "FabricPorts", "node_capacities"]

MAX_UNITS = 120
"""Most units between two GPUs: 36 links, or the widest rate ratio of `LINK_RATES`, within what the
sixteen-bit cut tables hold (64 pairs across a cut x 120 units)."""


@dataclass(frozen=True, slots=True)
class FabricPorts:
    """One up switch fabric: member mask, port rate of each GPU in GB/s (0 outside), reduction.

    `reduces`: the switch itself reduces (NVLink SHARP: NVLink generation 4 on).
    """

    members: int
    port_gbytes_per_s: tuple[float, ...]
    reduces: bool


@dataclass(frozen=True, slots=True)
class Capacities:
    """The numbers behind a node.

    - `units[i][j]`: direct accelerator links in units of `unit_gbytes_per_s`, n x n, symmetric.
    - `adjacency[i]`: mask of the GPUs that an accelerator link (direct or switched) joins to i.
    - `switch_groups`: masks of GPUs that share one PCIe uplink, with its GB/s; innermost first.
    - `socket_groups`: masks of GPUs of one socket, with the socket link's GB/s.
    - `port_gbytes_per_s[i]`: the GPU's own PCIe port.
    - `is_p2p`: whether GPUs reach each other over PCIe directly.
    """

    n: int
    unit_gbytes_per_s: float
    units: tuple[tuple[int, ...], ...]
    adjacency: tuple[int, ...]
    fabrics: tuple[FabricPorts, ...]
    port_gbytes_per_s: tuple[float, ...]
    switch_groups: tuple[tuple[int, float], ...]
    socket_groups: tuple[tuple[int, float], ...]
    is_p2p: bool


def node_capacities(
    topology: NodeTopology, constants: ModelConstants = DEFAULT_CONSTANTS
) -> Capacities:
    """Derive a node's capacities. O(n^2).

    An accelerator link whose count is unknown counts as one link; a GPU whose model is unknown has
    the slowest PCIe port and link rate; unknown P2P follows the GPU model's, else counts
    as there (NVML reports it on every live node).
    """
    n = topology.n_gpus
    models = [find_gpu_model(gpu.model) for gpu in topology.gpus]
    generations = [
        gpu.link_generation or (model.link_generation if model else None)
        for gpu, model in zip(topology.gpus, models, strict=True)
    ]
    switched = _fabric_of(topology)
    rates: dict[tuple[int, int], float] = {}
    counts: dict[tuple[int, int], int] = {}
    adjacency = [0] * n
    for i in range(n):
        for j in range(i):
            link = topology.links[i][j]
            if not link.is_up:
                continue
            adjacency[i] |= 1 << j
            adjacency[j] |= 1 << i
            if switched.get(i) is not None and switched.get(i) == switched.get(j):
                continue
            known = [g for g in (generations[i], generations[j]) if g is not None]
            rates[i, j] = link_rate(link.kind, min(known, default=None)).rate_gbytes_per_s
            counts[i, j] = link.n_links or 1
    unit = min(rates.values(), default=0.0)
    units = [[0] * n for _ in range(n)]
    for (i, j), rate in rates.items():
        units[i][j] = units[j][i] = min(MAX_UNITS, int(counts[i, j] * rate / unit))
    fabrics = tuple(
        _ports(topology, index, generations)
        for index, fabric in enumerate(topology.fabrics)
        if fabric.is_up
    )
    pcie = [pcie_rate(model.pcie_generation if model else None) for model in models]
    ports = tuple(rate * constants.pcie_scale for rate in pcie)
    known = [model.pcie_generation for model in models if model is not None]
    socket = socket_rate(topology.cpu, min(known, default=None)) * constants.socket_scale
    return Capacities(
        n=n,
        unit_gbytes_per_s=unit,
        units=tuple(tuple(row) for row in units),
        adjacency=tuple(adjacency),
        fabrics=fabrics,
        port_gbytes_per_s=ports,
        switch_groups=tuple(
            (group, min(ports[i] for i in range(n) if group >> i & 1))
            for group in _switch_groups(topology)
        ),
        socket_groups=tuple((group, socket) for group in _socket_groups(topology)),
        is_p2p=_is_p2p(topology, models),
    )


def _fabric_of(topology: NodeTopology) -> dict[int, int]:
    return {
        gpu: index
        for index, fabric in enumerate(topology.fabrics)
        if fabric.is_up
        for gpu, n_links in fabric.ports
        if n_links
    }


def _ports(topology: NodeTopology, index: int, generations: list[int | None]) -> FabricPorts:
    fabric = topology.fabrics[index]
    port = [0.0] * topology.n_gpus
    members = 0
    for gpu, n_links in fabric.ports:
        rate = link_rate(fabric.kind, generations[gpu]).switched_rate_gbytes_per_s
        port[gpu] = n_links * rate
        if n_links:
            members |= 1 << gpu
    known = [generations[gpu] for gpu, _ in fabric.ports]
    reduces = fabric.kind is LinkKind.NVLINK and all(g in _REDUCING for g in known)
    return FabricPorts(members, tuple(port), reduces)


_REDUCING = frozenset({4, 5, 6})
"""NVLink generations whose switch reduces (NVLink SHARP, third-generation NVSwitch on)."""


def _groups(n: int, is_joined: Callable[[int, int], bool]) -> list[int]:
    """Connected components of the pairs that are joined, as masks, in order of lowest id."""
    joined = [sum(1 << j for j in range(n) if is_joined(i, j)) for i in range(n)]
    return islands_of(joined, (1 << n) - 1)


def _switch_groups(topology: NodeTopology) -> list[int]:
    """PCIe switches with more than one GPU below them, innermost first."""
    shared: list[int] = []
    for farthest in (PcieLevel.PIX, PcieLevel.PXB):

        def is_joined(i: int, j: int, rank: int = farthest.rank) -> bool:
            return topology.pcie[i][j].rank <= rank

        groups = _groups(topology.n_gpus, is_joined)
        shared += [group for group in groups if group & (group - 1)]
    return list(dict.fromkeys(shared))


def _socket_groups(topology: NodeTopology) -> list[int]:
    def is_joined(i: int, j: int) -> bool:
        numa = topology.gpus[i].numa_node
        same_node = numa is not None and numa == topology.gpus[j].numa_node
        return same_node or topology.pcie[i][j] in _WITHIN_SOCKET

    return _groups(topology.n_gpus, is_joined)


_WITHIN_SOCKET = frozenset({PcieLevel.PIX, PcieLevel.PXB, PcieLevel.PHB, PcieLevel.NODE})


def _is_p2p(topology: NodeTopology, models: list[GpuModel | None]) -> bool:
    if topology.p2p is not P2pAccess.UNKNOWN:
        return topology.p2p is P2pAccess.YES
    return all(model is None or model.p2p is not P2pAccess.NO for model in models)
