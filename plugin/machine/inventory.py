"""Which resources and devices a machine offers, and which topology it publishes.

What it answers: from a machine's reading, the MIG strategy and the sharing, the extended resources
with their devices in the machine's order, and the topology of the devices that the extender may
plan by name. It must never decide which device is well (`plugin.health.book`), nor who gets one.

MIG strategies mean what they mean to NVIDIA's plugin (k8s-device-plugin v0.20.0,
internal/rm/device_map.go and rm.go):

- `none`: every GPU is a device, whether MIG is enabled on it or not.
- `single`: no GPU has MIG enabled, or all have; then the instances, all of one kind, are the
  devices of the one resource.
- `mixed`: GPUs without MIG are devices of the base resource; instances are those of one resource
  for each profile, `<domain>/mig-<profile>` with `.` for `+`. A compute instance that is smaller
  than its GPU instance (`1c.2g.10gb`) has no resource.

Anything else is an error, as there: MIG enabled without instances, `single` on a machine that is
not uniform. But a GPU that cannot be asked any more (`GpuReading.fault`) never makes one: where its
instances are not known it is left out, with a note, so that one bad GPU does not block the rest.

The topology is that of the base resource's devices: whole GPUs, or instances under `single`. None
is published where that resource is shared (replicas are placed by count, for now) or has no device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from plugin.errors import SettingsError
from plugin.machine.devices import Device, Resource
from plugin.machine.mig_topology import Part, topology_of
from plugin.machine.sharing import NO_SHARING, check_resource_name
from topology.errors import quote
from topology.model import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugin.machine.reader import GpuReading, MachineReading
    from plugin.machine.sharing import TimeSlicing
    from topology.model import NodeTopology

__all__ = ["MAX_DEVICE_ID", "Inventory", "MigStrategy", "take_inventory"]

MAX_DEVICE_ID = 63
"""Longest device id, in characters (k8s.io/kubelet v0.36.3, deviceplugin/v1beta1/api.proto)."""
_COMPUTE_PART = re.compile(r"\d+c\.")
"""How a profile begins whose compute instance is smaller than its GPU instance (go-nvlib,
pkg/nvlib/device/mig_profile.go, String)."""


class MigStrategy(Enum):
    """How MIG instances become resources (MIG_STRATEGY)."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the machine offers. `topology` is None where none is to be published.

    Resources without devices are left out. `notes` tell people what is not offered, and why.
    """

    resources: tuple[Resource, ...]
    topology: NodeTopology | None
    notes: tuple[str, ...] = ()


def take_inventory(
    reading: MachineReading,
    *,
    strategy: MigStrategy = MigStrategy.NONE,
    sharing: TimeSlicing = NO_SHARING,
    base: str = DEFAULT_RESOURCE,
) -> Inventory:
    """Take stock of a machine; `base` names the resource of whole GPUs.

    Raises `SettingsError` where the strategy does not suit the machine or a name or id is none that
    the kubelet takes.
    """
    check_resource_name(base)
    notes: list[str] = []
    named = _parts(reading.gpus, strategy, base, notes)
    resources = tuple(
        Resource(sharing.name_of(name), tuple(_devices(reading, name, parts, sharing)))
        for name, parts in named.items()
        if parts
    )
    notes.extend(
        f"{name} is to be shared, but this machine has no such devices"
        for name in sharing.replicas
        if not named.get(name)
    )
    topology = None
    if base in sharing.replicas:
        notes.append(
            f"no topology is published: {base} is shared, so that pods are placed by count"
        )
    elif named[base]:
        topology = topology_of(reading.topology, named[base])
    return Inventory(resources, topology, tuple(notes))


def _parts(
    gpus: Sequence[GpuReading], strategy: MigStrategy, base: str, notes: list[str]
) -> dict[str, list[Part]]:
    """The parts of each resource, before sharing; the base resource first."""
    if strategy is MigStrategy.NONE:
        return {base: [Part(place) for place in range(len(gpus))]}
    for gpu in gpus:
        _check_instances(gpu, notes)
    whole = [Part(place) for place, gpu in enumerate(gpus) if not gpu.is_mig_enabled]
    instances = [
        Part(place, one)
        for place, gpu in enumerate(gpus)
        if gpu.is_mig_enabled
        for one in sorted(gpu.instances, key=lambda one: one.index)
    ]
    if strategy is MigStrategy.SINGLE:
        return {base: _uniform(gpus, whole, instances, notes)}
    named: dict[str, list[Part]] = {base: whole}
    for part, name in zip(instances, _mig_names(instances, base), strict=True):
        named.setdefault(name, []).append(part)
    return named


def _check_instances(gpu: GpuReading, notes: list[str]) -> None:
    if gpu.is_mig_enabled and not gpu.instances:
        what = f"GPU {quote(gpu.uuid)}: MIG is enabled and there is no instance"
        if gpu.fault is None:
            msg = f"{what}, expected at least one, or MIG strategy none"
            raise SettingsError(msg)
        notes.append(f"{what}; it is left out: {gpu.fault}")


def _uniform(
    gpus: Sequence[GpuReading], whole: list[Part], instances: list[Part], notes: list[str]
) -> list[Part]:
    """The parts of the only resource of strategy `single`."""
    if not instances:
        return whole
    for part in whole:
        gpu = gpus[part.gpu]
        what = f"GPU {quote(gpu.uuid)}: MIG is not enabled, as it is on others"
        if gpu.fault is None:
            msg = f"{what}; MIG strategy single expects it on all GPUs or on none"
            raise SettingsError(msg)
        notes.append(f"{what}; it is left out: {gpu.fault}")
    kinds = {
        f"{one.instance.profile} ({one.instance.memory_mib} MiB)"
        for one in instances
        if one.instance is not None
    }
    if len(kinds) > 1:
        told = ", ".join(sorted(kinds))
        msg = f"MIG instances are {quote(told)}; MIG strategy single expects all of one kind"
        raise SettingsError(msg)
    return instances


def _mig_names(instances: Iterable[Part], base: str) -> Iterable[str]:
    domain = base.split("/", 1)[0]
    for part in instances:
        profile = "" if part.instance is None else part.instance.profile
        if _COMPUTE_PART.match(profile):
            msg = (
                f"MIG profile {quote(profile)} has no resource: MIG strategy mixed expects compute "
                "instances as large as their GPU instance"
            )
            raise SettingsError(msg)
        yield check_resource_name(f"{domain}/mig-{profile.replace('+', '.')}")


def _devices(
    reading: MachineReading, name: str, parts: Iterable[Part], sharing: TimeSlicing
) -> Iterable[Device]:
    replicas: Iterable[int | None] = (
        range(sharing.replicas[name]) if name in sharing.replicas else (None,)
    )
    for part in parts:
        gpu = reading.gpus[part.gpu]
        uuid = gpu.uuid if part.instance is None else part.instance.uuid
        for replica in replicas:
            # As NVIDIA's ids of replicas (internal/rm/devices.go, NewAnnotatedID).
            device_id = uuid if replica is None else f"{uuid}::{replica}"
            if len(device_id) > MAX_DEVICE_ID:
                msg = f"device id {quote(device_id)}, expected at most {MAX_DEVICE_ID} characters"
                raise SettingsError(msg)
            yield Device(
                id=device_id,
                gpu=part.gpu,
                gpu_uuid=gpu.uuid,
                numa_node=gpu.numa_node,
                instance=part.instance,
                replica=replica,
            )
