"""The device node of an NVIDIA GPU, `/dev/nvidia<minor>`, and the minor number in its path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.machine import GpuReading

__all__ = ["gpu_node", "minor_of"]

_PREFIX = "/dev/nvidia"


def gpu_node(minor: int) -> str:
    """The path of a GPU's device node (internal/rm/nvml_devices.go, `GetPaths`)."""
    return f"{_PREFIX}{minor}"


def minor_of(gpu: GpuReading) -> int | None:
    """The minor number of a GPU; None where it is unknown."""
    return int(gpu.nodes[0].removeprefix(_PREFIX)) if gpu.nodes else None
