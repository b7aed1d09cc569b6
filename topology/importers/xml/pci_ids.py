"""PCI ids that matter to a topology: which devices are GPUs, and what some are called.

What it answers: whether a PCI class and vendor make a GPU or a NIC, and under which name
`nvidia-smi` or `rocm-smi` lists a device id. It never guesses: a device id that is in no row has no
name.

Sources: PCI Code and ID Assignment, base classes 02, 03, 06 and 12; NCCL's own table of classes
(src/graph/topo.cc: 0x03 GPU, 0x02 NIC, 0x068000 NVSwitch, 0x068001 CPU; RCCL adds 0x12). Names:
hwloc recordings that hold a device id beside NVML's, CUDA's or OpenCL's own name for it
(ai-dynamo/nixl@8770b655, LLNL/mpibind@d5291800), else NVIDIA/gpu-admin-tools, gpu/devid_names.py,
and the PCI ID Repository.
"""

from __future__ import annotations

__all__ = [
    "MODEL_NAMES",
    "find_model_name",
    "has_gpu_class",
    "is_gpu",
    "is_infiniband",
    "is_network",
]

NVIDIA = "10de"
AMD = "1002"

_GPU_CLASSES = ("0300", "0302", "0380", "1200")
"""VGA, 3D and other display controllers, processing accelerators (MI300)."""

_MANAGEMENT = frozenset({(AMD, "515e"), (AMD, "4752"), (AMD, "5159")})
"""ES1000, Rage XL and RV100: display controllers of management boards with ATI's vendor id."""

MODEL_NAMES = {
    (NVIDIA, "15f8"): "Tesla P100-PCIE-16GB",
    (NVIDIA, "15f9"): "Tesla P100-SXM2-16GB",
    (NVIDIA, "1db1"): "Tesla V100-SXM2-16GB",
    (NVIDIA, "1db5"): "Tesla V100-SXM2-32GB",
    (NVIDIA, "1eb8"): "Tesla T4",
    (NVIDIA, "20b0"): "NVIDIA A100-SXM4-40GB",
    (NVIDIA, "20b2"): "NVIDIA A100-SXM4-80GB",
    (NVIDIA, "20b5"): "NVIDIA A100 80GB PCIe",
    (NVIDIA, "2230"): "NVIDIA RTX A6000",
    (NVIDIA, "2237"): "NVIDIA A10G",
    (NVIDIA, "2324"): "NVIDIA H800",
    (NVIDIA, "2330"): "NVIDIA H100 80GB HBM3",
    (NVIDIA, "2335"): "NVIDIA H200",
    (NVIDIA, "2684"): "NVIDIA GeForce RTX 4090",
    (NVIDIA, "27b2"): "NVIDIA RTX 4000 Ada Generation",
    (NVIDIA, "27b8"): "NVIDIA L4",
    (NVIDIA, "2901"): "NVIDIA B200",
    (AMD, "738c"): "AMD Instinct MI100",
    (AMD, "7408"): "AMD Instinct MI250X",
    (AMD, "740c"): "AMD Instinct MI250X/MI250",
    (AMD, "740f"): "AMD Instinct MI210",
    (AMD, "74a0"): "AMD Instinct MI300A",
    (AMD, "74a1"): "AMD Instinct MI300X",
    (AMD, "74b5"): "AMD Instinct MI300X VF",
}


def _bare(number: str | None) -> str:
    return (number or "").lower().removeprefix("0x")


def is_gpu(pci_class: str | None, vendor: str | None, *, device: str | None = None) -> bool:
    """Whether class and vendor make a GPU that computes; an unknown vendor does not hinder.

    The display controllers of management boards (ASPEED 1a03, Matrox 102b, the VGA device of a
    virtual machine) have the class but not the vendor.

    >>> is_gpu("0x030200", "0x10de"), is_gpu("0300", "1a03")
    (True, False)
    """
    if (_bare(vendor), _bare(device)) in _MANAGEMENT:
        return False
    return has_gpu_class(pci_class) and _bare(vendor) in {NVIDIA, AMD, ""}


def has_gpu_class(pci_class: str | None) -> bool:
    """Whether the class is that of GPUs, and of the display controllers of management boards."""
    return _bare(pci_class)[:4] in _GPU_CLASSES


def is_network(pci_class: str | None) -> bool:
    """Whether the class is a network controller (base class 02)."""
    return _bare(pci_class).startswith("02")


def is_infiniband(pci_class: str | None) -> bool:
    """Whether the class is an InfiniBand controller (0207): RDMA hardware by definition."""
    return _bare(pci_class).startswith("0207")


def find_model_name(vendor: str | None, device: str | None) -> str | None:
    """Name of a GPU by its PCI ids, as the vendor's tool prints it; None where no row holds them.

    >>> find_model_name("0x10de", "0x20b0")
    'NVIDIA A100-SXM4-40GB'
    """
    return MODEL_NAMES.get((_bare(vendor), _bare(device)))
