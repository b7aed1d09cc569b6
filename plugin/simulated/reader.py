"""A machine that is not there: a recording, with faults that may be put in while it runs.

What it answers: what `plugin.nvidia.nvml.library` would, so that everything above it can be tried
without a GPU. Recordings hold no uuids: GPUs bear some that are made of the node's name and their
index, so they are the same after each start and never the same on two nodes.

Faults stand in a file, whose format is that of `plugin.simulated.fault_file` (docs/simulate.md); no
file means none. The file is looked at in each `read`, `faults` and `wait`, and read where it
changed:

- a GPU under `lost` is in `faults()` and bears its fault in the reading, until it is taken out;
- an entry under `xid` is told by `wait` once in the life of this object, however often it is read;
- other links, other MIG instances, or a text that cannot be read make `wait` tell of lost events,
  as whoever reads must then look at everything again.

A text that cannot be read changes nothing: what was read last stays, and a note of the reading
says what is wrong. Write the file beside its place and move it there: half a text may be a text.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import NAMESPACE_DNS, uuid5

from plugin.errors import ReadingError
from plugin.machine import EventKind, GpuEvent, GpuReading, MachineReading, MigInstance
from plugin.simulated.broken_links import without_links
from plugin.simulated.fault_file import FaultPlan, parse_faults, profile_memory_mib
from topology.errors import TopologyError, quote
from topology.recordings import load_recording, parse_recording, recording_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.simulated.fault_file import XidEntry
    from topology.model import NodeTopology

__all__ = ["LOST_REASON", "SimulatedMachine"]

LOST_REASON = "lost (simulated)"
"""The fault of a GPU that the file says is lost."""

STEP_S = 0.25
"""Between two looks at the file while `wait` waits: a fault is told of within that time, and four
stat calls a second cost next to nothing (about 10 us each)."""

_NAMESPACE = uuid5(NAMESPACE_DNS, "simulated.coterie.gpu")
"""Under which all uuids of simulated devices are made."""

Signature = tuple[int, int, int]


class SimulatedMachine:
    """A `plugin.machine.reader.MachineReader`; `close` may be called while another thread waits.

    `recording` is the name of one that ships with the project, or the path of a file like them.
    Raises `ReadingError` where there is no such recording.
    """

    def __init__(self, recording: str, *, node_name: str, faults: Path | None = None) -> None:
        self._name = recording
        self._node_name = node_name
        self._path = faults
        self._whole = self._with_uuids(_load(recording))
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._signature: Signature | None = None
        self._plan = FaultPlan()
        self._trouble: str | None = None
        self._told: set[XidEntry] = set()
        self._events: list[GpuEvent] = []

    def read(self) -> MachineReading:
        """The recording as the faults leave it; never raises."""
        with self._lock:
            self._look()
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
            self._look()
            return {self._uuid(index): LOST_REASON for index in sorted(self._plan.lost)}

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """What the file newly says; looks at it every `STEP_S`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._look()
                events, self._events = tuple(self._events), []
            left_s = deadline_s - time.monotonic()
            if events or left_s <= 0 or self._closed.wait(min(STEP_S, left_s)):
                return events

    def close(self) -> None:
        """End a `wait` that is under way."""
        self._closed.set()

    # --- the recording ---

    def _with_uuids(self, topology: NodeTopology) -> NodeTopology:
        gpus = tuple(
            replace(gpu, uuid=f"GPU-{self._made_uuid(str(index))}")
            for index, gpu in enumerate(topology.gpus)
        )
        return replace(topology, gpus=gpus)

    def _made_uuid(self, place: str) -> str:
        return str(uuid5(_NAMESPACE, f"{self._node_name}/{place}"))

    def _uuid(self, index: int) -> str:
        return str(self._whole.gpus[index].uuid)

    def _gpu(self, index: int, plan: FaultPlan) -> GpuReading:
        gpu = self._whole.gpus[index]
        return GpuReading(
            index=index,
            uuid=self._uuid(index),
            pci_bus_id=gpu.pci_bus_id,
            model=gpu.model,
            memory_mib=gpu.memory_mib,
            numa_node=gpu.numa_node,
            minor=index,
            is_mig_enabled=index in plan.mig,
            instances=tuple(
                self._instance(index, place, profile)
                for place, profile in enumerate(plan.mig.get(index, ()))
            ),
            fault=LOST_REASON if index in plan.lost else None,
        )

    def _instance(self, index: int, place: int, profile: str) -> MigInstance:
        """One compute instance in each GPU instance, whose ids count from 1."""
        return MigInstance(
            uuid=f"MIG-{self._made_uuid(f'{index}/{place}/{profile}')}",
            profile=profile,
            index=place,
            gpu_instance=place + 1,
            compute_instance=0,
            memory_mib=profile_memory_mib(profile),
        )

    # --- the file of faults ---

    def _look(self) -> None:
        """Take over what the file says, if it changed; call it with the lock held."""
        if self._path is None:
            return
        try:
            state = self._path.stat()
            signature = (state.st_mtime_ns, state.st_size, state.st_ino)
            if signature == self._signature:
                return
            text = self._path.read_text(encoding="utf-8")
            self._signature = signature
            plan = parse_faults(text, self._whole)
        except FileNotFoundError:
            self._signature = None
            self._take(FaultPlan(), None)
        except (OSError, UnicodeDecodeError, TopologyError) as error:
            self._take(self._plan, f"faults {self._path} are as before: {error}")
        else:
            self._take(plan, None)

    def _take(self, plan: FaultPlan, trouble: str | None) -> None:
        before = self._plan.links_down, self._plan.mig, self._trouble
        self._plan, self._trouble = plan, trouble
        if before != (plan.links_down, plan.mig, trouble):
            self._events.append(GpuEvent(EventKind.LOST_EVENTS))
        for entry in plan.xids:
            if entry not in self._told:
                self._told.add(entry)
                self._events.append(self._event(entry, plan))

    def _event(self, entry: XidEntry, plan: FaultPlan) -> GpuEvent:
        if entry.gpu is None:
            return GpuEvent(EventKind.XID, xid=entry.code)
        instance = None
        if entry.instance is not None:
            profile = plan.mig[entry.gpu][entry.instance]
            instance = self._instance(entry.gpu, entry.instance, profile)
        return GpuEvent(
            EventKind.XID,
            uuid=self._uuid(entry.gpu),
            xid=entry.code,
            gpu_instance=None if instance is None else instance.gpu_instance,
            compute_instance=None if instance is None else instance.compute_instance,
        )


def _load(recording: str) -> NodeTopology:
    """Read a recording by name, else by path."""
    if recording in recording_names():
        return load_recording(recording)
    try:
        return parse_recording(Path(recording).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(recording_names())
        msg = f"recording {quote(recording)} cannot be read ({error}); expected a path or: {known}"
        raise ReadingError(msg) from error
    except TopologyError as error:
        msg = f"recording {quote(recording)}: {error}"
        raise ReadingError(msg) from error
