"""The contents of an Allocate answer for one container, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ContainerAccess", "DeviceNode", "Mount", "NoAccess"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the host that the container sees."""

    container_path: str
    host_path: str
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node of the host in the container; `permissions` of `r`, `w` and `m` (mknod)."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class ContainerAccess:
    """The answer for one container (ContainerAllocateResponse of v1beta1).

    `cdi_devices` are fully qualified CDI names.
    """

    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoAccess:
    """A container cannot be given a device, and why; for people."""

    reason: str
