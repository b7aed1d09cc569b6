"""What a support bundle holds of NVIDIA's driver: NVML's calls, `nvidia-smi`, nodes and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plugin.machine import Evidence, Program
from plugin.nvidia.container.dev_files import find_dev_root, find_nvml
from plugin.nvidia.nvml.recorded_calls import record_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.nvidia.settings import NvidiaSettings

__all__ = ["EVIDENCE"]

_SMI = "nvidia-smi"
_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin")
"""Of the driver's root (k8s-device-plugin v0.20.0, cmd/nvidia-device-plugin/root.go)."""
_QUESTIONS = (("-q",), ("topo", "-m"), ("nvlink", "-s"), ("nvlink", "-c"), ("nvlink", "-p"))


def _programs(settings: NvidiaSettings) -> Sequence[Program]:
    """`nvidia-smi` of the driver's root, with the library there, else the one on the path."""
    root = settings.driver_root_ctr_path
    found = (root / folder / _SMI for folder in _FOLDERS)
    smi = next((str(path) for path in found if path.is_file()), _SMI)
    library = find_nvml(root)
    variables = {} if library is None else {"LD_PRELOAD": str(library)}
    return tuple(Program((smi, *question), variables) for question in _QUESTIONS)


EVIDENCE: Evidence[NvidiaSettings] = Evidence(
    record_calls=record_calls,
    programs=_programs,
    dev_root=lambda settings: find_dev_root(settings.driver_root_ctr_path, Path("/")),
    dev_nodes=(
        "nvidia*",
        "nvidia-caps/*",
        "nvidia-caps-imex-channels/*",
        "gdrdrv",
        "infiniband/*",
        "dri/*",
    ),
    proc_files=(
        "driver/nvidia/version",
        "driver/nvidia/params",
        "driver/nvidia/gpus/*/information",
        "driver/nvidia/gpus/*/numa_status",
        "driver/nvidia-caps/*",
        "driver/nvidia-nvswitch/devices/*/information",
    ),
    identifying_keys=r".*\b(?:serial|guid|pdi)\b.*|host ?name|name",
)
"""`name` alone is that of a process in `nvidia-smi -q`; a GPU's is `Product Name`."""
