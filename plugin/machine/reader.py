"""A reading of a machine: its GPUs, its topology and its faults, and the protocol of readers.

These values are the same whichever vendor's driver or simulation they were read from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.machine.faults import FaultCode
    from topology.model import Gpu, NodeTopology

__all__ = [
    "NO_ANSWER",
    "EventKind",
    "GpuEvent",
    "GpuReading",
    "MachineReader",
    "MachineReading",
    "Partition",
    "ReaderCondition",
]


NO_ANSWER = "the driver does not answer"
"""The fault of a GPU of which a call is late: it may work, and was not reset when it answers."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a GPU that a container can be given by itself, by hardware partitioning.

    `id` is its uuid; `kind` is the vendor's name for its size; `parent` is the
    uuid of its GPU, on which `index` counts from 0. `address` holds the numbers by which the driver
    and its events name it. `memory_mib` is None where it is unknown.
    """

    id: str
    kind: str
    parent: str
    index: int
    address: tuple[int, ...] = ()
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The state of a physical GPU; None means unknown.

    `gpu` is the GPU as the topology has it, with its uuid; `index` is the driver's. `nodes` are the
    paths of its device nodes; () where they are unknown. `fault` says why the GPU cannot be used
    now, for people; None where nothing is wrong. `n_c2c_links` counts the links to a CPU on the
    same board. `requests_recovery` says whether the driver requests a reset or a restart of the
    node.
    """

    index: int
    gpu: Gpu
    nodes: tuple[str, ...] = ()
    is_partitioned: bool = False
    partitions: tuple[Partition, ...] = ()
    fault: str | None = None
    n_c2c_links: int | None = None
    requests_recovery: bool | None = None

    @property
    def uuid(self) -> str:
        """Every GPU that is read has one: readers leave out those that report none."""
        return str(self.gpu.uuid)


@dataclass(frozen=True, slots=True)
class MachineReading:
    """A machine at one moment; `notes` say what could not be read, and why.

    `topology` is of the physical GPUs in the order of `gpus`. A GPU that no longer answers stays in
    both, with the facts of its last good reading and its fault. `numa_distances` are the kernel's,
    by NUMA node: its distance to each node, in the order here.
    """

    gpus: tuple[GpuReading, ...]
    topology: NodeTopology
    driver_version: str | None = None
    notes: tuple[str, ...] = ()
    numa_distances: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def faults(self) -> Mapping[str, str]:
        """Why GPUs cannot be used: reason by uuid; healthy GPUs are absent."""
        return {gpu.uuid: gpu.fault for gpu in self.gpus if gpu.fault is not None}


class EventKind(Enum):
    """The kind of an event of the machine, as in the log and the metrics."""

    FAULT = "xid"
    """An error that the driver reports by number: `GpuEvent.code`. Published under the word of the
    first vendor, which queries and alerts know."""
    ECC = "ecc"
    """An ECC error (single or double bit), which alone makes nothing unhealthy."""
    LOST_EVENTS = "lost-events"
    """Events may have been missed: everything has to be checked."""


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """An event of a GPU; `uuid` is None where it is unknown which GPU (so: any).

    `code` is set for faults alone. `partition` is the address of the partition that the event is
    about (`Partition.address`); None where it is about the whole GPU.
    """

    kind: EventKind
    uuid: str | None = None
    code: FaultCode | None = None
    partition: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReaderCondition:
    """What is wrong with the reader itself.

    `without_events` are the uuids of GPUs whose faults only polls find. `restart_reason` says why
    only a new process may read the machine, or a GPU of it, again; empty: nothing is known that a
    restart would mend.
    """

    without_events: frozenset[str] = frozenset()
    restart_reason: str = ""


class MachineReader(Protocol):
    """One machine, real or simulated. Methods block; call them off the event loop.

    `wait` is called by one thread and may run beside the others; `read` and `faults` are called one
    after the other. A GPU that does not answer is at fault (`NO_ANSWER`), and none of them waits
    for it for more than a minute or two.
    """

    def read(self) -> MachineReading:
        """Read everything. Raises `ReadingError` where there is nothing to be read at all."""
        ...

    def faults(self) -> Mapping[str, str]:
        """Why GPUs cannot be used at this moment: reason by uuid; healthy GPUs are absent.

        Cheap enough to be called every few seconds.
        """
        ...

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """The events since the last call; waits for the first one up to `timeout_s`.

        Where the machine reports no events this only waits.
        """
        ...

    def condition(self) -> ReaderCondition:
        """The condition of the reader at this moment; does not block."""
        ...

    def close(self) -> None:
        """Release what was opened; no other method may be called afterwards."""
        ...
