"""CPU identity -> the processor classes that NCCL distinguishes.

What it answers: which `CpuPlatform` a CPU's vendor, family and model make. It never guesses: an
identity that is not complete is UNKNOWN.

Source: NVIDIA/nccl 5067397c, src/graph/topo.cc, ncclTopoAddCpu. One difference: NCCL takes an Intel
CPU of unknown family for a Broadwell; here it is unknown.
"""

from __future__ import annotations

from topology.model import CpuPlatform

__all__ = ["x86_platform"]

_INTEL_FAMILY = 6
_INTEL_FROM_MODEL = (
    (0xCF, CpuPlatform.INTEL_ERP),
    (0x8F, CpuPlatform.INTEL_SPR),
    (0x55, CpuPlatform.INTEL_SKL),
    (0, CpuPlatform.INTEL_BDW),
)


def x86_platform(vendor: str | None, *, family: int | None, model: int | None) -> CpuPlatform:
    """Class of an x86 processor by CPUID vendor, family and model.

    >>> x86_platform("GenuineIntel", family=6, model=143)
    <CpuPlatform.INTEL_SPR: 'intel-spr'>
    """
    if vendor == "AuthenticAMD":
        return CpuPlatform.AMD
    if vendor != "GenuineIntel" or family != _INTEL_FAMILY or model is None:
        return CpuPlatform.UNKNOWN
    fitting = (platform for lowest, platform in _INTEL_FROM_MODEL if model >= lowest)
    return next(fitting, CpuPlatform.UNKNOWN)
