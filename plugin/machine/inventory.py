"""The resources and devices that a machine offers, and the topology that it publishes.

The topology is that of the base resource's devices, which the extender plans by name: whole GPUs,
or partitions where the vendor offers those under the same name. None is published where that
resource is shared (replicas are placed by count) or has no device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from plugin.machine.devices import Device, Resource, check_resource_name
from plugin.machine.partition_topology import Unit, topology_of
from plugin.machine.sharing import NO_SHARING
from topology.errors import quote
from topology.model import DEFAULT_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plugin.machine.reader import GpuReading, MachineReading
    from plugin.machine.sharing import TimeSlicing
    from topology.model import NodeTopology

__all__ = ["MAX_DEVICE_ID", "Inventory", "Units", "take_inventory", "whole_gpus"]

MAX_DEVICE_ID = 63
"""Longest device id, in characters (k8s.io/kubelet v0.36.3, deviceplugin/v1beta1/api.proto)."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units of each resource before sharing, the base resource first, in the machine's order.

    `notes` say what is not offered, and why.
    """

    by_resource: Mapping[str, Sequence[Unit]] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()


def whole_gpus(gpus: Sequence[GpuReading], base: str) -> Units:
    """Every GPU as a unit of the base resource, whether it is partitioned or not."""
    return Units({base: [Unit(place) for place in range(len(gpus))]})


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the machine offers. `topology` is None where none is to be published.

    Resources without devices are left out. `notes` say what is not offered, and why;
    `warnings` what may be a mistake in the settings.
    """

    resources: tuple[Resource, ...]
    topology: NodeTopology | None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def take_inventory(
    reading: MachineReading,
    *,
    units_of: Callable[[Sequence[GpuReading], str], Units] = whole_gpus,
    sharing: TimeSlicing = NO_SHARING,
    base: str = DEFAULT_RESOURCE,
) -> Inventory:
    """Make the inventory of a machine; `base` names the resource of whole GPUs.

    Raises `SettingsError` where the settings do not suit the machine, or the kubelet would not take
    a name or an id.
    """
    check_resource_name(base)
    units = units_of(reading.gpus, base)
    named = units.by_resource
    resources = tuple(
        Resource(sharing.name_of(name), tuple(_devices(reading, name, own, sharing)))
        for name, own in named.items()
        if own
    )
    notes = list(units.notes)
    warnings = tuple(
        f"{name} is to be shared, but this machine has no such devices"
        for name in sharing.replicas
        if not named.get(name)
    )
    topology = None
    if base in sharing.replicas:
        notes.append(
            f"no topology is published: {base} is shared, so that pods are placed by count"
        )
    elif named.get(base):
        topology = topology_of(reading.topology, named[base])
    return Inventory(resources, topology, tuple(notes), warnings)


def _devices(
    reading: MachineReading, name: str, units: Iterable[Unit], sharing: TimeSlicing
) -> Iterable[Device]:
    replicas: Iterable[int | None] = (
        range(sharing.replicas[name]) if name in sharing.replicas else (None,)
    )
    for unit in units:
        gpu = reading.gpus[unit.gpu]
        own_id = gpu.uuid if unit.partition is None else unit.partition.id
        for replica in replicas:
            # Ids of replicas as in k8s-device-plugin, internal/rm/devices.go, NewAnnotatedID.
            device_id = own_id if replica is None else f"{own_id}::{replica}"
            if len(device_id) > MAX_DEVICE_ID:
                msg = f"device id {quote(device_id)}, expected at most {MAX_DEVICE_ID} characters"
                raise SettingsError(msg)
            yield Device(device_id, unit.gpu, gpu, partition=unit.partition, replica=replica)
