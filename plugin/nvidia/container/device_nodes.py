"""Which files under /dev a device is made of, and how NVIDIA's tools name it.

What it answers: the device nodes of a GPU or MIG instance, of what containers get beside it, and
the name of a device by uuid or index. It must never look at the machine it runs on: which nodes
there are is an argument (`plugin.nvidia.container.dev_files` looks).

Sources are files of k8s-device-plugin v0.20.0 and nvidia-container-toolkit v1.20.1 (toolkit).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.machine import Device, MachineReading

__all__ = [
    "CONTROL_NODES",
    "Extra",
    "IdStrategy",
    "NoAccess",
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
    """By which name a container's runtime is told a device (api/config/v1/consts.go)."""

    UUID = "uuid"
    INDEX = "index"


class Extra(Enum):
    """What every container with a GPU gets beside it, where switched on; in NVIDIA's order.

    The value is the CDI class (internal/cdi/cdi.go, `New`).
    """

    GDRCOPY = "gdrcopy"
    GDS = "gds"
    MOFED = "mofed"

    @property
    def variable(self) -> str:
        """The variable that asks NVIDIA's runtime for it (internal/plugin/server.go:339-347)."""
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


@dataclass(frozen=True, slots=True)
class NoAccess:
    """A container cannot be given a device, and why; for people."""

    reason: str


def unshared(devices: Iterable[Device]) -> tuple[Device, ...]:
    """One device for each GPU or MIG instance, replicas left out, in the machine's order."""
    first = {(d.gpu, -1 if d.instance is None else d.instance.index): d for d in devices}
    return tuple(first[place] for place in sorted(first))


def device_name(device: Device, reading: MachineReading, strategy: IdStrategy) -> str:
    """The name by which NVIDIA's runtimes and CDI specs know a device, without replica.

    An index is NVML's, and `<gpu>:<instance>` for a MIG instance (internal/rm/nvml_devices.go,
    `newMigDevice`; toolkit, pkg/nvcdi/namer.go).
    """
    instance = device.instance
    if strategy is IdStrategy.UUID:
        return device.gpu_uuid if instance is None else instance.uuid
    index = reading.gpus[device.gpu].index
    return f"{index}" if instance is None else f"{index}:{instance.index}"


def device_nodes(
    device: Device, reading: MachineReading, present: PresentNodes
) -> tuple[str, ...] | NoAccess:
    """The device nodes of one device alone, those of its parent GPU first.

    A MIG instance needs the nodes of its two capabilities too (internal/rm/nvml_devices.go,
    `GetPaths`; internal/mig/mig.go, `GetMigCapabilityDevicePaths`).
    """
    minor = reading.gpus[device.gpu].minor
    if minor is None:
        return NoAccess(f"GPU {device.gpu_uuid} told no minor number, so its /dev file is unknown")
    nodes = [f"/dev/nvidia{minor}"]
    if device.instance is not None:
        gpu_instance = f"gpu{minor}/gi{device.instance.gpu_instance}"
        for name in (gpu_instance, f"{gpu_instance}/ci{device.instance.compute_instance}"):
            number = present.capabilities.get(f"{name}/access")
            if number is None:
                return NoAccess(
                    f"MIG instance {device.instance.uuid} needs the capability {name}/access, "
                    "which the driver does not list in /proc/driver/nvidia-caps/mig-minors"
                )
            nodes.append(f"/dev/nvidia-caps/nvidia-cap{number}")
    return tuple(nodes)


def imex_node(channel: int) -> str:
    """The device node of an IMEX channel (internal/imex/imex.go, `Path`)."""
    return f"/dev/nvidia-caps-imex-channels/channel{channel}"
