"""What NVIDIA GPUs and their MIG devices are offered as: the MIG strategies.

They mean what they mean to NVIDIA's plugin (k8s-device-plugin v0.20.0, internal/rm/device_map.go
and rm.go):

- `none`: every GPU is a device, whether MIG is enabled on it or not.
- `single`: no GPU has MIG enabled, or all have; then the instances, all of one kind, are the
  devices of the one resource.
- `mixed`: GPUs without MIG are devices of the base resource; instances are those of one resource
  for each profile, `<domain>/mig-<profile>` with `.` for `+`. A compute instance that is smaller
  than its GPU instance (`1c.2g.10gb`) has no resource.

Anything else is an error, as there: MIG enabled without instances, `single` on a machine that is
not uniform. But a GPU that no longer answers (`GpuReading.fault`) never causes one: where its
instances are unknown it is left out, with a note, so that one bad GPU does not block the rest.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from plugin.machine import Partition, Unit, Units, check_resource_name, whole_gpus
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugin.machine import GpuReading

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
    """The units of each resource under a strategy; the base resource first."""
    if strategy is MigStrategy.NONE:
        return whole_gpus(gpus, base)
    notes: list[str] = []
    for gpu in gpus:
        _check_instances(gpu, notes)
    whole = [Unit(place) for place, gpu in enumerate(gpus) if not gpu.is_partitioned]
    instances = [
        (place, one)
        for place, gpu in enumerate(gpus)
        if gpu.is_partitioned
        for one in sorted(gpu.partitions, key=lambda one: one.index)
    ]
    units = [Unit(place, one) for place, one in instances]
    if strategy is MigStrategy.SINGLE:
        if not units:
            return Units({base: whole}, tuple(notes))
        _check_uniform([gpus[unit.gpu] for unit in whole], [one for _, one in instances], notes)
        return Units({base: units}, tuple(notes))
    named: dict[str, list[Unit]] = {base: whole}
    for unit, name in zip(units, _resources((one for _, one in instances), base), strict=True):
        named.setdefault(name, []).append(unit)
    return Units(named, tuple(notes))


def _check_instances(gpu: GpuReading, notes: list[str]) -> None:
    if gpu.is_partitioned and not gpu.partitions:
        what = f"GPU {quote(gpu.uuid)}: MIG is enabled and there is no instance"
        if gpu.fault is None:
            msg = f"{what}, expected at least one, or MIG strategy none"
            raise SettingsError(msg)
        notes.append(f"{what}; it is left out: {gpu.fault}")


def _check_uniform(
    whole: Iterable[GpuReading], instances: Iterable[Partition], notes: list[str]
) -> None:
    """Strategy `single`: MIG on all GPUs, instances all of one kind."""
    for gpu in whole:
        what = f"GPU {quote(gpu.uuid)}: MIG is not enabled, as it is on others"
        if gpu.fault is None:
            msg = f"{what}; MIG strategy single expects it on all GPUs or on none"
            raise SettingsError(msg)
        notes.append(f"{what}; it is left out: {gpu.fault}")
    kinds = {f"{profile_of(one)} ({one.memory_mib} MiB)" for one in instances}
    if len(kinds) > 1:
        found = ", ".join(sorted(kinds))
        msg = f"MIG instances are {quote(found)}; MIG strategy single expects all of one kind"
        raise SettingsError(msg)


def _resources(instances: Iterable[Partition], base: str) -> Iterable[str]:
    domain = base.split("/", 1)[0]
    for one in instances:
        profile = profile_of(one)
        if _COMPUTE_PART.match(profile):
            msg = (
                f"MIG profile {quote(profile)} has no resource: MIG strategy mixed expects compute "
                "instances as large as their GPU instance"
            )
            raise SettingsError(msg)
        yield check_resource_name(f"{domain}/mig-{profile.replace('+', '.')}")


def profile_of(instance: Partition) -> str:
    """NVIDIA's name for the size of a MIG device, such as `1g.10gb`."""
    return instance.kind.removeprefix(f"{MIG} ")
