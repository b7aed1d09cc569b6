"""What one link of each kind carries, in GB/s per direction: one table, each row with its source.

What it answers: the rate of an NVLink, XGMI, C2C, PCIe or socket link, and the few constants by
which a set's links turn into NCCL all-reduce bus bandwidth. It never looks at a set of GPUs
(`topology.value.set_value` does).

Constants that the measured nodes cannot identify stay the published ones. `ModelConstants` carries
the ones that they do identify, so that `benchmarks fidelity` can fit them on other machines.
"""

from __future__ import annotations

from dataclasses import dataclass

from topology.model.gpu_models import GA102_GENERATION
from topology.model.node_topology import CpuPlatform, LinkKind

__all__ = [
    "DEFAULT_CONSTANTS",
    "FITTED_MESSAGE_BYTES",
    "LINK_RATES",
    "REFERENCE_MESSAGE_BYTES",
    "LinkRate",
    "ModelConstants",
    "link_rate",
    "pcie_rate",
    "socket_rate",
]

REFERENCE_MESSAGE_BYTES = 1 << 30
"""The message size that a value is claimed for: 1 GiB, large enough that start-up cost is gone."""
FITTED_MESSAGE_BYTES = 16 << 20
"""The message size of the measured nodes: 16 MiB (SusCom-Lab/BandPilot@de4dd93)."""


@dataclass(frozen=True, slots=True)
class LinkRate:
    """One row: rate of one link, GB/s per direction.

    `rate` enters direct meshes (rings of links), `switched_rate` is what NCCL gets out of one link
    into a switch.
    """

    kind: LinkKind
    generation: int
    rate_gbytes_per_s: float
    switched_rate_gbytes_per_s: float
    source: str


LINK_RATES = (
    LinkRate(
        LinkKind.NVLINK, 1, 18.0, 18.0, "NCCL topo.h SM60 18.0; P100 pairs measure 17.3 (Tartan)"
    ),
    LinkRate(
        LinkKind.NVLINK, 2, 25.0, 20.0, "hwloc #574: 25, V100 meshes reach it; NCCL SM70 20.0"
    ),
    LinkRate(LinkKind.NVLINK, 3, 20.0, 20.0, "NCCL topo.h SM80 20.0 (hwloc #574: 25 nominal)"),
    LinkRate(
        LinkKind.NVLINK,
        GA102_GENERATION,
        12.0,
        12.0,
        "NCCL topo.h SM86 12.0 (GA102 whitepaper: 14.06 nominal)",
    ),
    LinkRate(LinkKind.NVLINK, 4, 20.6, 20.6, "NCCL topo.h SM90 20.6 (hwloc #574: 25 nominal)"),
    LinkRate(
        LinkKind.NVLINK, 5, 40.1, 40.1, "NCCL topo.h SM100 40.1 (1.8 TB/s over 18 links, both ways)"
    ),
    LinkRate(LinkKind.XGMI, 1, 46.0, 46.0, "AMD MI50/MI60: 92 GB/s a link, both ways"),
    LinkRate(LinkKind.XGMI, 2, 46.0, 46.0, "AMD MI100: 92 GB/s a link, both ways"),
    LinkRate(LinkKind.XGMI, 3, 50.0, 50.0, "AMD CDNA 2 white paper: 100 GB/s a link, both ways"),
    LinkRate(LinkKind.XGMI, 4, 64.0, 64.0, "AMD CDNA 3 white paper: 128 GB/s a link, both ways"),
)
"""Kind and generation to GB/s of one link and direction."""

UNKNOWN_GENERATION_RATE = min(row.rate_gbytes_per_s for row in LINK_RATES)
"""GB/s of an accelerator link of unknown generation: the lowest of the table, so that an unknown
link never ranks best."""

PCIE_X16_RATES = {3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
"""PCIe generation to GB/s of 16 lanes: NCCL topo.h, PCI_BW 12.0 for Gen3, scaled by link speed."""
UNKNOWN_PCIE_RATE = 12.0
"""GB/s where the GPU model is unknown: PCI_BW of NCCL topo.h, the slowest in use."""

SOCKET_RATES = {
    CpuPlatform.INTEL_BDW: 6.0,
    CpuPlatform.INTEL_SKL: 10.0,
    CpuPlatform.INTEL_SPR: 22.0,
    CpuPlatform.INTEL_ERP: 40.0,
    CpuPlatform.AMD: 16.0,
    CpuPlatform.POWER9: 32.0,
    CpuPlatform.ARM: 6.0,
}
"""GB/s between sockets: NCCL topo.h (BDW_QPI_BW, SKL_QPI_BW ... P9_BW)."""

UNKNOWN_SOCKET_RATES = {3: 6.0, 4: 16.0, 5: 22.0}
"""GB/s between sockets of an unknown platform, by the GPUs' PCIe generation: the figure of the
servers that brought that generation (Broadwell, EPYC Rome, Sapphire Rapids). Without a generation
the lowest."""


@dataclass(frozen=True, slots=True)
class ModelConstants:
    """The constants that turn capacities into all-reduce bus bandwidth.

    With B_inf the bandwidth without start-up cost and M the message size,
    `1/B(M) = 1/B_inf + a * (16 MiB / M)`; `a` in s/GB, one for each kind of path.

    - `relay_share`: what NCCL's relaying through the set's own GPUs keeps of the minimum cut, where
      no closed ring exists. 0.75: V100 sets without a ring measure 17.8 and 32 GB/s at cuts of 1
      and 2 links (BandPilot V100).
    - `mesh_a` 0.0037: 1/B = 1/(25 r) + 0.0037 fits the ring sets of the V100 node within 4 %.
    - `switch_a` 0.0013: H100 node at 16 MiB against 2 GiB, 0.0013..0.0021 by set size (BandPilot);
      Azure ND H100 v5 gives 0.0022 (8 GPUs, 234 GB/s at 16 MiB, 479 at 8 GiB).
    - `pcie_a` 0.0100: small median error over the 243 sets of the A6000 node that PCIe limits;
      0.0083 fits its pairs under one switch alone (20.2 GB/s at 16 MiB against 24 of the port).
    - `in_switch_gain`: what reduction inside the switch (NVLink SHARP, generation 4 on) adds, by
      set size 2, 3, ... 8 and above: H100 at 2 GiB over 18 links x 20.6 GB/s (BandPilot
      343, 356, 362, 410, 432, 459, 473; Azure ND H100 v5 479 with 8).
    - `staging_share`: what is left of the PCIe rate where P2P is off and traffic goes through host
      memory: RTX 4090 across sockets 10.7 of 24 GB/s (BandPilot 4090).
    """

    relay_share: float = 0.75
    mesh_a: float = 0.0037
    switch_a: float = 0.0013
    pcie_a: float = 0.0100
    in_switch_gain: tuple[float, ...] = (0.926, 0.960, 0.976, 1.106, 1.166, 1.238, 1.277)
    staging_share: float = 0.45
    pcie_scale: float = 1.0
    socket_scale: float = 1.0


DEFAULT_CONSTANTS = ModelConstants()

_RATES = {(row.kind, row.generation): row for row in LINK_RATES}


def link_rate(kind: LinkKind, generation: int | None) -> LinkRate:
    """Look a link's rate up; an unknown kind or generation takes `UNKNOWN_GENERATION_RATE`.

    >>> link_rate(LinkKind.NVLINK, 2).rate_gbytes_per_s
    25.0
    """
    row = _RATES.get((kind, generation)) if generation is not None else None
    if row is not None:
        return row
    rate = UNKNOWN_GENERATION_RATE
    return LinkRate(kind, 0, rate, rate, "generation unknown")


def pcie_rate(generation: int | None) -> float:
    """GB/s of 16 PCIe lanes; `UNKNOWN_PCIE_RATE` where the generation is None or not in the table.

    >>> pcie_rate(4)
    24.0
    """
    return PCIE_X16_RATES.get(generation, UNKNOWN_PCIE_RATE) if generation else UNKNOWN_PCIE_RATE


def socket_rate(platform: CpuPlatform, pcie_generation: int | None) -> float:
    """GB/s between two sockets of a platform; `UNKNOWN_SOCKET_RATES` where it is unknown.

    >>> socket_rate(CpuPlatform.AMD, 3), socket_rate(CpuPlatform.UNKNOWN, 4)
    (16.0, 16.0)
    """
    lowest = min(UNKNOWN_SOCKET_RATES.values())
    by_generation = UNKNOWN_SOCKET_RATES.get(pcie_generation or 0, lowest)
    return SOCKET_RATES.get(platform, by_generation)
