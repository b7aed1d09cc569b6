"""A simulated machine: a recording, with faults that can be injected while it runs.

It is read like a real machine, so that the whole plugin can be tried without a GPU. Recordings hold
no uuids: GPUs get some that are made of the node's name and their index, so they are the same after
each start and never the same on two nodes. Device nodes, fault codes and partitions look like those
of the vendor that is simulated (`SimulatedHardware`).

Faults come from a file, whose format is that of `plugin.simulated.fault_file` (docs/simulate.md);
no file means none. The file is checked in each `read`, `faults` and `wait`, and read where it
changed:

- a GPU under `lost` is in `faults()` and has its fault in the reading, until it is taken out;
- an entry with a fault code is reported by `wait` once in the life of this object;
- other links, other partitions, or a text that cannot be read make `wait` report lost events, so
  that the reader's user checks everything.

A text that cannot be read changes nothing: what was read last stays, and a note of the reading
says what is wrong. Replace the file atomically: half a text may be a valid one.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import NAMESPACE_DNS, uuid5

from plugin.errors import ReadingError
from plugin.machine import (
    EventKind,
    FaultCode,
    GpuEvent,
    GpuReading,
    MachineReading,
    ReaderCondition,
)
from plugin.simulated.broken_links import without_links
from plugin.simulated.fault_file import FaultPlan, parse_faults
from topology.errors import TopologyError, file_fault, quote
from topology.recordings import load_recording, parse_recording, recording_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.machine import Partition, SimulatedHardware
    from plugin.simulated.fault_file import FaultEntry
    from topology.model import NodeTopology

__all__ = ["LOST_REASON", "SimulatedMachine"]

LOST_REASON = "lost (simulated)"
"""The fault of a GPU that is lost according to the file."""

STEP_S = 0.25
"""Between two checks of the file while `wait` waits: a fault is reported within that time."""

_NAMESPACE = uuid5(NAMESPACE_DNS, "simulated.coterie.gpu")
"""Under which all uuids of simulated devices are made."""

Signature = tuple[int, int, int]


class SimulatedMachine:
    """A `plugin.machine.reader.MachineReader`; `close` may be called while another thread waits.

    `recording` is the name of one that ships with the project, or the path of a file like them.
    Raises `ReadingError` where there is no such recording.
    """

    def __init__(
        self,
        recording: str,
        *,
        node_name: str,
        hardware: SimulatedHardware,
        faults: Path | None = None,
        step_s: float = STEP_S,
    ) -> None:
        self._step_s = step_s
        self._hardware = hardware
        self._name = recording
        self._node_name = node_name
        self._path = faults
        self._whole = self._with_uuids(_load(recording))
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._signature: Signature | None = None
        self._plan = FaultPlan()
        self._trouble: str | None = None
        self._reported: set[FaultEntry] = set()
        self._events: list[GpuEvent] = []

    def read(self) -> MachineReading:
        """The recording as the faults leave it; never raises."""
        with self._lock:
            self._check_file()
            plan, trouble = self._plan, self._trouble
        notes = [f"simulated from recording {self._name}"]
        if trouble is not None:
            notes.append(trouble)
        return MachineReading(
            gpus=tuple(self._gpu(index, plan) for index in range(self._whole.n_gpus)),
            topology=without_links(self._whole, plan.links_down),
            notes=tuple(notes),
        )

    def faults(self) -> Mapping[str, str]:
        """The GPUs that are lost."""
        with self._lock:
            self._check_file()
            return {self._uuid(index): LOST_REASON for index in sorted(self._plan.lost)}

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """The new faults of the file, which is checked every `step_s`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._check_file()
                events, self._events = tuple(self._events), []
            left_s = deadline_s - time.monotonic()
            if events or left_s <= 0 or self._closed.wait(min(self._step_s, left_s)):
                return events

    def condition(self) -> ReaderCondition:
        """Every GPU reports events, and nothing needs a restart."""
        return ReaderCondition()

    def close(self) -> None:
        """End a `wait` that is under way."""
        self._closed.set()

    # --- the recording ---

    def _with_uuids(self, topology: NodeTopology) -> NodeTopology:
        gpus = tuple(
            replace(gpu, uuid=f"{self._hardware.uuid_prefix}{self._made_uuid(str(index))}")
            for index, gpu in enumerate(topology.gpus)
        )
        return replace(topology, gpus=gpus)

    def _made_uuid(self, place: str) -> str:
        return str(uuid5(_NAMESPACE, f"{self._node_name}/{place}"))

    def _uuid(self, index: int) -> str:
        return str(self._whole.gpus[index].uuid)

    def _gpu(self, index: int, plan: FaultPlan) -> GpuReading:
        return GpuReading(
            index=index,
            gpu=self._whole.gpus[index],
            nodes=self._hardware.nodes(index),
            is_partitioned=index in plan.partitions,
            partitions=self._partitions(index, plan),
            fault=LOST_REASON if index in plan.lost else None,
        )

    def _partitions(self, index: int, plan: FaultPlan) -> tuple[Partition, ...]:
        made = (
            self._hardware.partition(
                kind, self._uuid(index), place, self._made_uuid(f"{index}/{place}/{kind}")
            )
            for place, kind in enumerate(plan.partitions.get(index, ()))
        )
        return tuple(one for one in made if one is not None)

    # --- the file of faults ---

    def _check_file(self) -> None:
        """Apply the file, if it changed; call it with the lock held."""
        if self._path is None:
            return
        try:
            state = self._path.stat()
            signature = (state.st_mtime_ns, state.st_size, state.st_ino)
            if signature == self._signature:
                return
            text = self._path.read_text(encoding="utf-8")
            self._signature = signature
            plan = parse_faults(text, self._whole, self._hardware)
        except FileNotFoundError:
            self._signature = None
            self._take(FaultPlan(), None)
        except (OSError, UnicodeDecodeError, TopologyError) as error:
            self._take(self._plan, f"faults {self._path} are as before: {error}")
        else:
            self._take(plan, None)

    def _take(self, plan: FaultPlan, trouble: str | None) -> None:
        before = self._plan.links_down, self._plan.partitions, self._trouble
        self._plan, self._trouble = plan, trouble
        if before != (plan.links_down, plan.partitions, trouble):
            self._events.append(GpuEvent(EventKind.LOST_EVENTS))
        for entry in plan.events:
            if entry not in self._reported:
                self._reported.add(entry)
                self._events.append(self._event(entry, plan))

    def _event(self, entry: FaultEntry, plan: FaultPlan) -> GpuEvent:
        code = FaultCode(self._hardware.codes, entry.code)
        if entry.gpu is None:
            return GpuEvent(EventKind.FAULT, code=code)
        address = None
        if entry.partition is not None:
            address = self._partitions(entry.gpu, plan)[entry.partition].address
        return GpuEvent(EventKind.FAULT, self._uuid(entry.gpu), code, address)


def _load(recording: str) -> NodeTopology:
    """Read a recording by name, else by path."""
    if recording in recording_names():
        return load_recording(recording)
    try:
        return parse_recording(Path(recording).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(recording_names())
        msg = (
            f"recording {quote(recording)} cannot be read ({file_fault(error)}), expected a path "
            f"or one of: {known}"
        )
        raise ReadingError(msg) from error
    except TopologyError as error:
        msg = f"recording {quote(recording)}: {error}"
        raise ReadingError(msg) from error
