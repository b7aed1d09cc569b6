"""What one link of each kind carries, in GB/s per direction: one table, each figure with its source.

What it answers: the rate of an NVLink, XGMI, C2C, PCIe or socket link, and the few constants by
which a set's links turn into NCCL all-reduce bus bandwidth. It never looks at a set of GPUs
(`topology.value` does).

Constants that the measured nodes cannot identify stay the published ones. `ModelConstants` carries
the ones that they do identify, so that `benchmarks fidelity` can fit them on other machines.
"""

from __future__ import annotations

from dataclasses import dataclass

from topology.gpu_models import GA102_GENERATION
from topology.model import CpuPlatform, LinkKind

__all__ = [
    "DEFAULT_CONSTANTS",
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

    `rate` enters direct meshes (rings of links), `switched_rate` what NCCL gets out of one link into
    a switch.
    """

    kind: LinkKind
    generation: int
    rate_gbytes_per_s: float
    switched_rate_gbytes_per_s: float
    source: str


LINK_RATES = (
    LinkRate(LinkKind.NVLINK, 1, 18.0, 18.0, "NCCL topo.h SM60 18.0; P100 pairs measure 17.3 (Tartan)"),
    LinkRate(LinkKind.NVLINK, 2, 25.0, 20.0, "hwloc #574: 25; NCCL topo.h SM70 20.0 through a switch"),
    LinkRate(LinkKind.NVLINK, 3, 25.0, 20.0, "hwloc #574: 25; NCCL topo.h SM80 20.0 through a switch"),
    LinkRate(
        LinkKind.NVLINK, GA102_GENERATION, 14.0625, 12.0, "GA102 whitepaper: 14.0625; NCCL SM86 12.0"
    ),
    LinkRate(LinkKind.NVLINK, 4, 25.0, 20.6, "hwloc #574: 25; NCCL topo.h SM90 20.6"),
    LinkRate(LinkKind.NVLINK, 5, 50.0, 40.1, "NVIDIA GB200: 1.8 TB/s over 18 links; NCCL SM100 40.1"),
    LinkRate(LinkKind.XGMI, 1, 46.0, 46.0, "AMD MI50/MI60: 92 GB/s a link, both ways"),
    LinkRate(LinkKind.XGMI, 2, 46.0, 46.0, "AMD MI100: 92 GB/s a link, both ways"),
    LinkRate(LinkKind.XGMI, 3, 50.0, 50.0, "AMD CDNA 2 white paper: 100 GB/s a link, both ways"),
    LinkRate(LinkKind.XGMI, 4, 64.0, 64.0, "AMD CDNA 3 white paper: 128 GB/s a link, both ways"),
)
"""Kind and generation to GB/s of one link and direction."""
