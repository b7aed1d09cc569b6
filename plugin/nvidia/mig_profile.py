"""The profile (`1g.10gb`) of a MIG device, from its name in NVML, else from its slices.

Method: NVML names a MIG device `<product> MIG <profile>` (nvml.h, nvmlDeviceGetName: "MIG device
names which can be used to identify devices based on their attributes"). Without a profile in the
name it is made as NVIDIA's plugin makes it (NVIDIA/go-nvlib, pkg/nvlib/device/mig_profile.go): the
memory as a share of the GPU's in eighths, rounded up, in whole GiB of the GPU's rounded up; slices
of the compute instance are named where it does not fill its GPU instance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil, floor

__all__ = ["MigShape", "mig_profile"]

_NAMED = re.compile(r"\bMIG ((?:\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb(?:[+-][a-z]+(?:\.[a-z]+)*)*)\s*$")
_EIGHTHS = 8
_MIB = 1 << 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class MigShape:
    """Slices of a MIG device: of its GPU instance, of its compute instance, and its memory."""

    gpu_slices: int
    compute_slices: int
    memory_mib: int


def mig_profile(
    name: str | None, shape: MigShape | None, *, gpu_memory_bytes: int | None
) -> str | None:
    """The profile; None where neither name nor size is known.

    >>> mig_profile("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", None, gpu_memory_bytes=None)
    '1c.3g.40gb'
    >>> mig_profile(None, MigShape(1, 1, 4864), gpu_memory_bytes=40 << 30)
    '1g.5gb'
    """
    match = _NAMED.search(name or "")
    if match:
        return match[1]
    if shape is None or not gpu_memory_bytes or not shape.gpu_slices:
        return None
    share = ceil(shape.memory_mib * _MIB / gpu_memory_bytes * _EIGHTHS) / _EIGHTHS
    gib = floor(share * ceil(gpu_memory_bytes / _GIB) + 0.5)  # Go rounds half away from zero
    profile = f"{shape.gpu_slices}g.{gib}gb"
    is_whole = shape.compute_slices == shape.gpu_slices
    return profile if is_whole else f"{shape.compute_slices}c.{profile}"
