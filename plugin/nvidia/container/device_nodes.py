"""The files under /dev that make up a device, and the names that NVIDIA's tools have for it.

Sources are files of k8s-device-plugin v0.20.0 and nvidia-container-toolkit v1.20.1 (toolkit).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from plugin.container import NoAccess
from plugin.nvidia.gpu_node import gpu_node, minor_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.machine import Device

__all__ = [
    "CONTROL_NODES",
    "Extra",
    "IdStrategy",
    "PresentNodes",
    "device_name",
    "device_nodes",
    "imex_node",
    "unshared",
]

CONTROL_NODES = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)
"""Every container with a GPU gets those of them that exist (internal/rm/nvml_manager.go,
`GetDevicePaths`; internal/plugin/server.go, `apiDeviceSpecs`; in CDI too: toolkit,
pkg/nvcdi/common-nvml.go)."""


class IdStrategy(Enum):
    """The name of a device for container runtimes (api/config/v1/consts.go)."""

    UUID = "uuid"
    INDEX = "index"


class Extra(Enum):
    """Further devices of every container with a GPU, where enabled; in NVIDIA's order.

    The value is the CDI class (internal/cdi/cdi.go, `New`).
    """

    GDRCOPY = "gdrcopy"
    GDS = "gds"
    MOFED = "mofed"

    @property
    def variable(self) -> str:
        """The variable that requests it of the runtime (internal/plugin/server.go:339-347)."""
        return f"NVIDIA_{self.name}"

    @property
    def patterns(self) -> tuple[str, ...]:
        """Its device nodes, as shell patterns (toolkit, internal/discover/<value>.go)."""
        return _PATTERNS[self]


_PATTERNS: Mapping[Extra, tuple[str, ...]] = {
    Extra.GDRCOPY: ("/dev/gdrdrv",),
    Extra.GDS: ("/dev/nvidia-fs*",),
    Extra.MOFED: ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
}


@dataclass(frozen=True, slots=True)
class PresentNodes:
    """What exists of the device nodes that are not a GPU's own.

    `control` is a part of `CONTROL_NODES`, in that order. `capabilities` are the numbers of
    `/dev/nvidia-caps/nvidia-cap<number>` by what they open, as the driver names it
    (`gpu0/gi1/ci0/access`). `extras` holds those that have at least one node.
    """

    control: tuple[str, ...] = ()
    capabilities: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    imex_channels: tuple[int, ...] = ()
    extras: Mapping[Extra, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))


def unshared(devices: Iterable[Device]) -> tuple[Device, ...]:
    """One device for each GPU or MIG device, replicas left out, in the machine's order."""
    first = {(d.place, -1 if d.partition is None else d.partition.index): d for d in devices}
    return tuple(first[place] for place in sorted(first))


def device_name(device: Device, strategy: IdStrategy) -> str:
    """The name by which NVIDIA's runtimes and CDI specs know a device, without replica.

    An index is NVML's, and `<gpu>:<index>` for a MIG device (internal/rm/nvml_devices.go,
    `newMigDevice`; toolkit, pkg/nvcdi/namer.go).
    """
    mig = device.partition
    if strategy is IdStrategy.UUID:
        return device.gpu.uuid if mig is None else mig.id
    index = device.gpu.index
    return f"{index}" if mig is None else f"{index}:{mig.index}"


def device_nodes(device: Device, present: PresentNodes) -> tuple[str, ...] | NoAccess:
    """The device nodes of one device alone, those of its parent GPU first.

    A MIG device needs the nodes of its two capabilities too (internal/rm/nvml_devices.go,
    `GetPaths`; internal/mig/mig.go, `GetMigCapabilityDevicePaths`).
    """
    minor = minor_of(device.gpu)
    if minor is None:
        return NoAccess(f"GPU {device.gpu.uuid} has no known minor number, so no known /dev file")
    nodes = [gpu_node(minor)]
    if device.partition is not None:
        gpu_instance, compute_instance = device.partition.address
        parent = f"gpu{minor}/gi{gpu_instance}"
        for name in (parent, f"{parent}/ci{compute_instance}"):
            number = present.capabilities.get(f"{name}/access")
            if number is None:
                return NoAccess(
                    f"MIG device {device.partition.id} needs the capability {name}/access, "
                    "which the driver does not list in /proc/driver/nvidia-caps/mig-minors"
                )
            nodes.append(f"/dev/nvidia-caps/nvidia-cap{number}")
    return tuple(nodes)


def imex_node(channel: int) -> str:
    """The device node of an IMEX channel (internal/imex/imex.go, `Path`)."""
    return f"/dev/nvidia-caps-imex-channels/channel{channel}"
