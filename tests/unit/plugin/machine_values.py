"""GPUs, partitions and events written down in a line, as NVIDIA's reader would give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.machine import Device, EventKind, FaultCode, GpuEvent, GpuReading, Partition
from plugin.nvidia import VENDOR
from plugin.simulated.reader import SimulatedMachine
from topology.model import Gpu

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["device", "gpu_reading", "mig_device", "simulated_machine", "xid_event"]


def gpu_reading(
    index: int,
    uuid: str,
    *,
    minor: int | None = None,
    numa_node: int | None = None,
    partitions: tuple[Partition, ...] | None = None,
    fault: str | None = None,
) -> GpuReading:
    """A GPU; one that is given partitions, perhaps none, has MIG enabled."""
    return GpuReading(
        index,
        Gpu(uuid=uuid, numa_node=numa_node),
        nodes=() if minor is None else (f"/dev/nvidia{minor}",),
        is_partitioned=partitions is not None,
        partitions=partitions or (),
        fault=fault,
    )


def device(
    id_: str,
    place: int,
    uuid: str,
    *,
    partition: Partition | None = None,
    replica: int | None = None,
) -> Device:
    """A device of a GPU of which only place and uuid matter."""
    return Device(id_, place, gpu_reading(place, uuid), partition=partition, replica=replica)


def mig_device(
    uuid: str,
    profile: str,
    index: int,
    gpu_instance: int,
    compute_instance: int,
    memory_mib: int | None = None,
    *,
    parent: str = "",
) -> Partition:
    """A MIG device."""
    address = (gpu_instance, compute_instance)
    return Partition(uuid, f"MIG {profile}", parent, index, address, memory_mib)


def xid_event(uuid: str | None, number: int, address: tuple[int, int] | None = None) -> GpuEvent:
    """An XID of a GPU, or of the MIG device at this address."""
    return GpuEvent(EventKind.FAULT, uuid, FaultCode("XID", number), address)


def simulated_machine(
    recording: str, *, node_name: str, faults: Path | None = None, step_s: float = 0.01
) -> SimulatedMachine:
    """A recorded machine that looks like NVIDIA's."""
    return SimulatedMachine(
        recording, node_name=node_name, hardware=VENDOR.simulated, faults=faults, step_s=step_s
    )
