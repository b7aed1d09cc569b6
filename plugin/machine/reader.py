"""What a reader tells of a machine: its GPUs as they are, its topology, and what went wrong.

What it answers: the values that every reader of machines yields, NVML's and the simulated one's,
and the protocol that both follow. It must never read anything itself, nor decide which device is
served (`plugin.machine.inventory`) or when one is bad (`plugin.health.book`).

`MachineReading.topology` holds the physical GPUs in the order of `gpus`; a GPU that can no longer
be asked stays in both, as it was known before, with its `fault`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from topology.errors import InvalidTopology, quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.model import NodeTopology

__all__ = [
    "EventKind",
    "GpuEvent",
    "GpuReading",
    "MachineReader",
    "MachineReading",
    "MigInstance",
]


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG device of a GPU.

    `uuid` as NVML gives it (`MIG-...`); `profile` as NVIDIA names it, without prefix (`1g.10gb`);
    `index` counts from 0 within its GPU. `gpu_instance` and `compute_instance` are NVML's ids, by
    which an event names it.
    """

    uuid: str
    profile: str
    index: int
    gpu_instance: int
    compute_instance: int
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A physical GPU; None means that nobody told.

    `index` is NVML's; `minor` is the number of `/dev/nvidia<minor>`. `fault` says why the GPU
    cannot be used now, for people; None where nothing is wrong. `n_c2c_links` counts the links to
    a Grace CPU on the same board (NVLink-C2C).
    """

    index: int
    uuid: str
    pci_bus_id: str | None = None
    model: str | None = None
    memory_mib: int | None = None
    numa_node: int | None = None
    minor: int | None = None
    is_mig_enabled: bool = False
    instances: tuple[MigInstance, ...] = ()
    fault: str | None = None
    n_c2c_links: int | None = None


@dataclass(frozen=True, slots=True)
class MachineReading:
    """A machine at one moment; `notes` tell people what could not be read, and why.

    `numa_distances` are the kernel's, by NUMA node: its distance to each node, in the order here.
    """

    gpus: tuple[GpuReading, ...]
    topology: NodeTopology
    driver_version: str | None = None
    notes: tuple[str, ...] = ()
    numa_distances: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        told = tuple(gpu.uuid for gpu in self.gpus)
        drawn = tuple(gpu.uuid for gpu in self.topology.gpus)
        if told != drawn:
            msg = f"topology is of GPUs {quote(drawn)}, expected those read: {quote(told)}"
            raise InvalidTopology(msg)


class EventKind(Enum):
    """What an event of the machine is about."""

    XID = "xid"
    """A critical error that the driver reports by number (NVML nvmlEventTypeXidCriticalError)."""
    ECC = "ecc"
    """An ECC error (single or double bit); NVIDIA's plugin notes and ignores them."""
    LOST_EVENTS = "lost-events"
    """Events may have been missed: everything has to be looked at."""


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """Something happened to a GPU; `uuid` is None where it is unknown which (so: any).

    `xid` is set for XID events alone. `gpu_instance` and `compute_instance` are set where the event
    is about one MIG device (NVML says 0xFFFFFFFF otherwise).
    """

    kind: EventKind
    uuid: str | None = None
    xid: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class MachineReader(Protocol):
    """One machine, real or simulated. Methods block; call them off the event loop."""

    def read(self) -> MachineReading:
        """Read everything anew. Raises `ReadingError` where there is nothing to be read at all."""
        ...

    def faults(self) -> Mapping[str, str]:
        """Why GPUs cannot be used at this moment: reason by uuid; those that are well are absent.

        Cheap enough to be asked every few seconds.
        """
        ...

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """What happened since the last call; waits for the first event up to `timeout_s`.

        Where the machine cannot tell of events this only waits.
        """
        ...

    def close(self) -> None:
        """Release what was opened; nothing may be asked afterwards."""
        ...
