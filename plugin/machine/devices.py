"""The devices that the kubelet hands out, and the GPU or partition that each of them is.

A device is a whole GPU, a partition of one, or one of several replicas of either (time-slicing).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from topology.errors import quote

if TYPE_CHECKING:
    from plugin.machine.reader import GpuReading, Partition

__all__ = ["Device", "Resource", "check_resource_name"]

_MAX_NAME_LENGTH = 63
"""Of a resource, domain included (k8s-device-plugin, api/config/v1/consts.go,
`MaxResourceNameLength`)."""
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_RESOURCE = re.compile(rf"{_DOMAIN}/{_DOMAIN}")
"""A name is a DNS subdomain itself (resources.go, NewResourceName)."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of the kubelet's.

    `id` is the kubelet's device id: the uuid of the GPU or partition, with `::n` behind it for
    replica n (k8s-device-plugin, internal/rm/devices.go). `gpu` is its physical GPU, `place` that
    GPU's place in `MachineReading.gpus`.
    """

    id: str
    place: int
    gpu: GpuReading
    partition: Partition | None = None
    replica: int | None = None

    @property
    def numa_node(self) -> int | None:
        """The NUMA node of its GPU; None where it is unknown."""
        return self.gpu.gpu.numa_node


@dataclass(frozen=True, slots=True)
class Resource:
    """An extended resource of the node and its devices, in the machine's order."""

    name: str
    devices: tuple[Device, ...]


def check_resource_name(name: str) -> str:
    """A resource name that the kubelet will take, or `SettingsError`."""
    if len(name) > _MAX_NAME_LENGTH or not _RESOURCE.fullmatch(name):
        msg = (
            f"resource name is {quote(name)}, expected domain/name in lower case, at most "
            f"{_MAX_NAME_LENGTH} characters"
        )
        raise SettingsError(msg)
    return name
