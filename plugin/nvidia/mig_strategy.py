"""What NVIDIA GPUs and their MIG devices are offered as: the MIG strategies.

They mean what they mean to NVIDIA's plugin (k8s-device-plugin v0.20.0, internal/rm/device_map.go
and rm.go):

- `none`: every GPU is a device, whether MIG is enabled on it or not.
- `single`: no GPU has MIG enabled, or all have; then the instances, all of one kind, are the
  devices of the one resource.
- `mixed`: GPUs without MIG are devices of the base resource; instances are those of one resource
  for each profile, `<domain>/mig-<profile>` with `.` for `+`. A compute instance that is smaller
  than its GPU instance (`1c.2g.10gb`) has no resource.

Anything else is an error to NVIDIA's plugin. Here the GPU or instance that does not suit is left
out with a note, and the others are offered: a GPU with MIG enabled and no instance; with `single` a
GPU that is not as most are (of equally many, as the first of them is); with `mixed` an instance
without a resource. Only a machine of which nothing remains is an error. A GPU that is at fault
itself (`GpuReading.fault`) does not count among the most.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from plugin.machine import Unit, Units, check_resource_name, whole_gpus
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugin.machine import GpuReading, Partition

__all__ = ["MIG", "MigStrategy", "mig_units", "profile_of"]

MIG = "MIG"
"""How the kind of a MIG device begins: `MIG 1g.10gb`."""
_COMPUTE_PART = re.compile(r"\d+c\.")
"""How a profile begins whose compute instance is smaller than its GPU instance (go-nvlib,
pkg/nvlib/device/mig_profile.go, String)."""


class MigStrategy(Enum):
    """How MIG instances become resources (MIG_STRATEGY)."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


def mig_units(gpus: Sequence[GpuReading], base: str, strategy: MigStrategy) -> Units:
    """The units of each resource under a strategy; the base resource first.

    Raises `SettingsError` where no unit remains.
    """
    if strategy is MigStrategy.NONE:
        return whole_gpus(gpus, base)
    notes: list[str] = []
    units = _units_of_one_kind(gpus, notes) if strategy is MigStrategy.SINGLE else _units(gpus)
    named: dict[str, list[Unit]] = {base: []}
    for unit in units:
        gpu = gpus[unit.gpu]
        if unit.partition is None and gpu.is_partitioned:
            notes.append(_left_out(gpu, "MIG is enabled and there is no instance"))
        elif unit.partition is None or strategy is MigStrategy.SINGLE:
            named[base].append(unit)
        elif _COMPUTE_PART.match(profile := profile_of(unit.partition)):
            what = f"MIG profile {quote(profile)} has no resource under MIG strategy mixed"
            notes.append(f"{what}; {quote(unit.partition.id)} is left out")
        else:
            domain = base.split("/", 1)[0]
            name = check_resource_name(f"{domain}/mig-{profile.replace('+', '.')}")
            named.setdefault(name, []).append(unit)
    if gpus and not any(named.values()):
        msg = f"MIG strategy {strategy.value} suits no GPU of this machine: {'; '.join(notes)}"
        raise SettingsError(msg)
    return Units(named, tuple(notes))


def _units(gpus: Iterable[GpuReading]) -> list[Unit]:
    """Whole GPUs before instances; one with MIG and without an instance stands for itself."""
    units = [Unit(place, None) for place, gpu in enumerate(gpus) if not gpu.partitions]
    return units + [
        Unit(place, one)
        for place, gpu in enumerate(gpus)
        for one in sorted(gpu.partitions, key=lambda one: one.index)
    ]


def _units_of_one_kind(gpus: Sequence[GpuReading], notes: list[str]) -> list[Unit]:
    """The units of the GPUs that are as most are, and of those without any."""
    kinds = [_kinds(gpu) for gpu in gpus]
    uniform = [place for place, found in enumerate(kinds) if len(found) == 1]
    voters = [place for place in uniform if gpus[place].fault is None] or uniform
    most = Counter(kinds[place][0] for place in voters).most_common(1)
    chosen = most[0][0] if most else ""
    suits = [found in {(chosen,), ()} for found in kinds]
    for gpu, found, is_suited in zip(gpus, kinds, suits, strict=True):
        if len(found) > 1:
            named = ", ".join(found)
            notes.append(_left_out(gpu, f"its instances are {named}, expected all of one kind"))
        elif not is_suited:
            notes.append(_left_out(gpu, f"it is {''.join(found)}, and most GPUs are {chosen}"))
    return [unit for unit in _units(gpus) if suits[unit.gpu]]


def _kinds(gpu: GpuReading) -> tuple[str, ...]:
    """What a GPU is under `single`: without MIG, or the kinds of its instances, ascending."""
    if not gpu.is_partitioned:
        return ("without MIG",)
    return tuple(sorted({f"{profile_of(one)} ({one.memory_mib} MiB)" for one in gpu.partitions}))


def _left_out(gpu: GpuReading, what: str) -> str:
    reason = "" if gpu.fault is None else f": {gpu.fault}"
    return f"GPU {quote(gpu.uuid)}: {what}; it is left out{reason}"


def profile_of(instance: Partition) -> str:
    """NVIDIA's name for the size of a MIG device, such as `1g.10gb`."""
    return instance.kind.removeprefix(f"{MIG} ")
