"""What a GPU's name says about its links: generation, link count, PCIe generation, P2P.

What it answers: the facts that a recording does not print because they belong to the product. It
never guesses: a name that is in no row gives None, and the facts stay unknown.

Method: the first row whose pattern is found in the name, case ignored; more special names stand
before more general ones. Sources, one key a row: [hwloc] NVLink rates per generation, open-
mpi/hwloc issue 574; [nvml] NVIDIA's product pages as quoted in k8s-test-infra's mock NVML profiles
(3b2b865d); [ga102] NVIDIA GA102 whitepaper; [nccl] src/graph/topo.h and tuning (5067397c); [cdna]
AMD CDNA 2 and CDNA 3 white papers; [p2p] NVIDIA dropped PCIe P2P from GeForce from RTX 30 on (no
P2P on RTX 4090: NVIDIA developer forum, driver 530 and later; seen in SusCom-Lab/BandPilot@de4dd93
as inverted PCIe order).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from topology.model.node_topology import LinkKind, P2pAccess

__all__ = ["GA102_GENERATION", "GPU_MODEL_NAMES", "GpuModel", "find_gpu_model"]


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What all GPUs of one product share.

    `links_per_gpu` is the most accelerator links one GPU has, 0 for none. `link_generation` is the
    NVLink (1..6) or XGMI generation, None without links. `pcie_generation` 3..6, always 16 lanes.
    """

    pattern: str
    link_kind: LinkKind
    link_generation: int | None
    links_per_gpu: int
    pcie_generation: int
    p2p: P2pAccess
    source: str


_NV = LinkKind.NVLINK
_NO = LinkKind.NONE
_YES = P2pAccess.YES
_OFF = P2pAccess.NO

GA102_GENERATION = 30
"""NVLink 3 with four-lane links (GA102: RTX 3090, A6000, A40): 14.06 GB/s, not 25."""

_ROWS = (
    # pattern, kind, generation, links, PCIe generation, P2P over PCIe, source
    GpuModel(r"gb[23]00", _NV, 5, 18, 5, _YES, "nvml"),
    GpuModel(r"\bb[23]00", _NV, 5, 18, 5, _YES, "nvml"),
    GpuModel(r"gh200", _NV, 4, 18, 5, _YES, "nvml"),
    GpuModel(r"h[128]00 nvl", _NV, 4, 18, 5, _YES, "nvml"),
    GpuModel(r"h[18]00.*pcie", _NV, 4, 12, 5, _YES, "nvml"),
    GpuModel(r"\bh800", _NV, 4, 8, 5, _YES, "nvml"),
    GpuModel(r"\bh(100|200|20)\b", _NV, 4, 18, 5, _YES, "nvml"),
    GpuModel(r"\ba800", _NV, 3, 8, 4, _YES, "nvml"),
    GpuModel(r"\ba100", _NV, 3, 12, 4, _YES, "hwloc"),
    GpuModel(r"\ba30\b", _NV, 3, 4, 4, _YES, "hwloc"),
    GpuModel(r"\ba10g?\b|\ba16\b|\ba2\b", _NO, None, 0, 4, _YES, "nvml"),
    GpuModel(r"\ba40\b|a[56]000\b|a4500\b|a5500\b", _NV, GA102_GENERATION, 4, 4, _YES, "ga102"),
    GpuModel(r"\ba[24]000\b", _NO, None, 0, 4, _YES, "ga102"),
    GpuModel(r"rtx 3090", _NV, GA102_GENERATION, 4, 4, _OFF, "ga102 p2p"),
    GpuModel(r"l40s?\b|\bl4\b|\bl20\b", _NO, None, 0, 4, _YES, "nvml"),
    GpuModel(r"rtx (6000|5000|4000).*ada|\bada (rtx|generation)", _NO, None, 0, 4, _YES, "nvml"),
    GpuModel(r"rtx pro [456]000", _NO, None, 0, 5, _YES, "nvml"),
    GpuModel(r"rtx 50[5-9]0", _NO, None, 0, 5, _OFF, "p2p"),
    GpuModel(r"rtx [34]0[5-9]0", _NO, None, 0, 4, _OFF, "p2p"),
    GpuModel(r"v100.*pcie", _NO, None, 0, 3, _YES, "hwloc"),
    GpuModel(r"v100", _NV, 2, 6, 3, _YES, "hwloc"),
    GpuModel(r"quadro rtx [68]000|quadro rtx 5000|titan rtx|rtx 2080", _NV, 2, 2, 3, _YES, "hwloc"),
    GpuModel(r"p100.*pcie", _NO, None, 0, 3, _YES, "hwloc"),
    GpuModel(r"p100", _NV, 1, 4, 3, _YES, "hwloc"),
    GpuModel(r"\bt4g?\b|titan v|\bp40\b|\bp4\b|k80|k40|m60|m40|gtx", _NO, None, 0, 3, _YES, "nvml"),
    GpuModel(r"mi3[0-9][0-9]", LinkKind.XGMI, 4, 7, 5, _YES, "cdna"),
    GpuModel(r"mi2[0-9][0-9]", LinkKind.XGMI, 3, 8, 4, _YES, "cdna"),
    GpuModel(r"mi100", LinkKind.XGMI, 2, 3, 4, _YES, "cdna"),
    GpuModel(r"mi[56]0\b|vega ?20|radeon pro vii", LinkKind.XGMI, 1, 2, 4, _YES, "cdna"),
)
GPU_MODEL_NAMES = (
    *("NVIDIA GB300", "NVIDIA GB200", "NVIDIA B300", "NVIDIA B200", "NVIDIA GH200 480GB"),
    *("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA H20"),
    *("NVIDIA H800", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A800-SXM4-80GB"),
    *("NVIDIA A30", "NVIDIA A10", "NVIDIA A10G", "NVIDIA A16", "NVIDIA A2", "NVIDIA A40"),
    *("NVIDIA RTX A6000", "NVIDIA RTX A5500", "NVIDIA RTX A5000", "NVIDIA RTX A4500"),
    *("NVIDIA RTX A4000", "NVIDIA RTX A2000 12GB", "NVIDIA L40S", "NVIDIA L40", "NVIDIA L20"),
    *("NVIDIA L4", "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX PRO 6000 Blackwell"),
    *("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"),
    *("NVIDIA GeForce RTX 3080", "NVIDIA GeForce RTX 2080 Ti", "Quadro RTX 8000"),
    *("Tesla V100-SXM2-32GB", "Tesla V100-PCIE-16GB", "Tesla P100-SXM2-16GB"),
    *("Tesla P100-PCIE-16GB", "Tesla T4", "Tesla P40", "Tesla P4", "Tesla K80"),
    *("AMD Instinct MI300X", "AMD Instinct MI250X", "AMD Instinct MI210", "AMD Instinct MI100"),
    *("AMD Instinct MI60", "AMD Instinct MI50"),
)
"""A product of each row at least, as the driver prints its name, for messages that propose one."""
_COMPILED = tuple((re.compile(row.pattern, re.IGNORECASE), row) for row in _ROWS)


def find_gpu_model(name: str | None) -> GpuModel | None:
    """Look a product name up; None where the name is None or in no row.

    >>> find_gpu_model("Tesla V100-SXM2-32GB").links_per_gpu
    6
    >>> find_gpu_model("NVIDIA RTX A6000").link_generation == GA102_GENERATION
    True
    >>> find_gpu_model("some accelerator") is None
    True
    """
    if name is None:
        return None
    for pattern, row in _COMPILED:
        if pattern.search(name):
            return row
    return None
