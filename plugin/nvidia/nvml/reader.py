"""Reads the machine through NVML and the kernel: a `plugin.machine.reader.MachineReader`.

A GPU that is lost, or a call that the driver lacks, costs what it concerns and nothing else: the
rest is read, and the GPU stays listed with the values of its last good reading.

Method:

- What lies between two GPUs (PCIe ancestor, P2P) and where a NVLink ends does not change while the
  driver runs, so it is read once and kept by uuid; all else is read again by each `read`.
- `faults` makes two calls for each GPU. One that failed before is looked up by its uuid, so a
  GPU that comes back is seen without a `read`.
- Where the library lost the driver (unloaded, reloaded) it is opened again, once for a call.
  A driver of another version cannot be opened by this process; the error says so.
- NVML's wait cannot be woken. `wait` therefore waits in slices of `SLICE_S`, which is also how long
  `close` may take. A waiter never holds the lock that readers take, only that of the event set.
- The event set is made again when other GPUs respond than before, and after an error; since events
  may be lost between, the first result then is LOST_EVENTS.
"""

from __future__ import annotations

import threading
import time
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from plugin.errors import ReadingError
from plugin.machine import EventKind, GpuEvent, MachineReading
from plugin.nvidia.nvml.discovery import NOT_LISTED, describe, unlinked_pairs, with_remembered
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.events import EventWatch
from plugin.nvidia.nvml.gpu import LIBRARY_GONE_CODES, QUIET_CODES, GpuReader
from plugin.nvidia.nvml.library import Nvml, NvmlCode, fault_text, preload
from plugin.nvidia.nvml.raw_machine import RawGpu, RawMachine, UnreadGpu, pair_key
from plugin.sysfs import Sysfs
from topology.errors import InvalidTopology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from plugin.nvidia.nvml.gpu import FarEnds
    from plugin.nvidia.nvml.library import Handle

__all__ = ["SLICE_S", "NvmlMachine"]

SLICE_S = 1.0
"""Longest wait inside NVML: the end of the plugin's pod waits no longer."""
PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
"""Pause after a wait that failed, doubled while it goes on failing: each failure makes the
caller read everything again. Faults are polled meanwhile."""
CLOSE_S = 5.0
"""How long `close` waits for a reading: one takes less than a second where nothing hangs."""

T = TypeVar("T")

PairValues = dict[tuple[str, str], "int | None"]
"""By pair of uuids; None where NVML has no value."""


class NvmlMachine:
    """This machine. Methods may be called from several threads, `wait` from one at a time."""

    def __init__(
        self, sysfs: Sysfs | None = None, *, find_library: Callable[[], Path | None] = lambda: None
    ) -> None:
        """`find_library` gives NVML's file; None leaves it to the loader's own search."""
        self._sysfs = sysfs or Sysfs()
        self._find_library = find_library
        self._nvml = Nvml()
        self._lock = threading.RLock()  # the library, and all that was read from it
        self._waiting = threading.Lock()  # the event set; taken after `_lock`, or alone
        self._closed = threading.Event()
        self._is_open = False
        self._gpus: tuple[RawGpu, ...] = ()
        self._handles: dict[str, Handle] = {}
        self._ancestors: PairValues = {}
        self._p2p: PairValues = {}
        self._far_ends: FarEnds = {}
        self._watch: EventWatch | None = None
        self._is_watch_due = True
        self._was_watched = False
        self._pause_s = PAUSE_S
        self._resume_at_s = 0.0

    # --- reading ---

    def read(self) -> MachineReading:
        """Read everything.

        Raises `NvmlError` where there is no driver, `ReadingError` where no GPU's uuid can
        be read and none could before, or the values contradict each other.
        """
        with self._lock:
            return self._retried(self._read)

    def faults(self) -> Mapping[str, str]:
        """Why GPUs cannot be used at this moment; reads first where nothing was read yet."""
        with self._lock:
            if not self._gpus:
                return self.read().faults
            try:
                return self._retried(self._faults)
            except NvmlError as error:
                return dict.fromkeys((gpu.uuid for gpu in self._gpus), fault_text(error))

    def _retried(self, call: Callable[[], T]) -> T:
        """A call's value; where the library lost its driver, it is opened again first."""
        try:
            self._open()
            return call()
        except NvmlError as error:
            if error.code not in LIBRARY_GONE_CODES:
                raise
            self._drop()
            self._open()
            return call()

    def _read(self) -> MachineReading:
        gpu_reader = GpuReader(self._nvml, self._sysfs, self._far_ends)
        found: list[RawGpu] = []
        unread: list[UnreadGpu] = []
        handles: dict[str, Handle] = {}
        for index in range(self._nvml.count()):
            try:
                handle = self._nvml.handle(index)
                uuid = self._nvml.uuid(handle)
            except NvmlError as error:
                _check_library(error)
                unread.append(UnreadGpu(index, fault_text(error)))
                continue
            handles[uuid] = handle
            found.append(gpu_reader.read(index, handle, uuid))
        gpus, notes = with_remembered(found, unread, self._gpus)
        if not gpus:
            reason = "; ".join(gpu.reason for gpu in unread) or "NVML counts none"
            msg = f"no GPU can be read, expected at least one: {reason}"
            raise ReadingError(msg)
        if handles.keys() != self._handles.keys():
            self._is_watch_due = True
        self._gpus, self._handles = gpus, handles
        self._read_pairs(found, gpu_reader)
        raw = RawMachine(
            gpus=gpus,
            ancestors=_known(self._ancestors),
            p2p=_known(self._p2p),
            nics=self._sysfs.nics(),
            cpu=self._sysfs.cpu(),
            numa_distances=self._sysfs.numa_distances(),
            driver_version=self._driver_version(),
            notes=(*notes, *gpu_reader.notes),
        )
        try:
            return describe(raw)
        except InvalidTopology as error:
            msg = f"NVML and sysfs contradict each other: {error}"
            raise ReadingError(msg) from error

    def _driver_version(self) -> str | None:
        try:
            return self._nvml.driver_version()
        except NvmlError:
            return None

    def _read_pairs(self, found: Iterable[RawGpu], gpu_reader: GpuReader) -> None:
        healthy = [gpu for gpu in found if gpu.fault is None]
        for pairs, known, call in (
            (combinations(healthy, 2), self._ancestors, self._nvml.common_ancestor),
            (unlinked_pairs(healthy), self._p2p, self._nvml.p2p_read_status),
        ):
            for a, b in pairs:
                key = pair_key(a.uuid, b.uuid)
                if key in known:
                    continue
                try:
                    known[key] = call(self._handles[a.uuid], self._handles[b.uuid])
                except NvmlError as error:
                    gpu_reader.note_error(error)
                    if error.code == NvmlCode.FUNCTION_NOT_FOUND:
                        break  # this driver does not have the call
                    if error.code in QUIET_CODES:
                        known[key] = None

    def _faults(self) -> Mapping[str, str]:
        gpu_reader = GpuReader(self._nvml, self._sysfs, self._far_ends)
        found = ((gpu.uuid, self._fault_of(gpu.uuid, gpu_reader)) for gpu in self._gpus)
        return {uuid: fault for uuid, fault in found if fault is not None}

    def _fault_of(self, uuid: str, gpu_reader: GpuReader) -> str | None:
        """The fault of a GPU; one at fault is looked for, as it may have a new handle by now."""
        known = self._handles.get(uuid)
        if known is not None and gpu_reader.fault_of(known) is None:
            return None
        try:
            handle = self._nvml.handle_of(uuid)
        except NvmlError as error:
            _check_library(error)
            return NOT_LISTED if error.code == NvmlCode.NOT_FOUND else fault_text(error)
        if known is None or self._nvml.address(known) != self._nvml.address(handle):
            self._handles[uuid] = handle
            self._is_watch_due = True
        return gpu_reader.fault_of(handle)

    # --- events ---

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """What happened; where NVML reports no events, or is missing, this only waits."""
        deadline_s = time.monotonic() + timeout_s
        while not self._closed.is_set():
            watch, is_new = self._current_watch()
            if is_new:
                return (GpuEvent(EventKind.LOST_EVENTS),)
            left_s = max(0.0, deadline_s - time.monotonic())
            if watch is None:
                self._closed.wait(left_s)
                return ()
            events = self._wait_slice(watch, min(SLICE_S, left_s))
            if events or left_s <= SLICE_S:
                return events
        return ()

    def _wait_slice(self, watch: EventWatch, slice_s: float) -> tuple[GpuEvent, ...]:
        try:
            with self._waiting:
                events = watch.wait(slice_s) if watch is self._watch else ()
        except NvmlError:
            with self._lock:
                self._is_watch_due = True
                self._resume_at_s = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
            return ()
        self._pause_s = PAUSE_S
        return events

    def _current_watch(self) -> tuple[EventWatch | None, bool]:
        """The watch of the GPUs that respond, and whether events may be lost since the last one."""
        with self._lock:
            if not self._is_watch_due or self._closed.is_set():
                return self._watch, False
            if not self._handles or time.monotonic() < self._resume_at_s:
                return None, False
            self._is_watch_due = False
            self._end_watch()
            try:
                watch = EventWatch(self._nvml, self._handles)
            except NvmlError:
                watch = None
            if watch is not None and watch.is_empty:
                watch.close()
                watch = None
            self._watch = watch
            is_new, self._was_watched = self._was_watched, True
            return watch, is_new

    def _end_watch(self) -> None:
        with self._waiting:
            watch, self._watch = self._watch, None
            if watch is not None:
                _quietly(watch.close)

    # --- the library ---

    def close(self) -> None:
        """End a `wait` under way and shut the library down; takes up to `SLICE_S`.

        The library stays open while another thread's call hangs in it for `CLOSE_S`.
        """
        self._closed.set()
        if self._lock.acquire(timeout=CLOSE_S):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _open(self) -> None:
        if self._closed.is_set():
            msg = "the machine is closed, expected no further call"
            raise ReadingError(msg)
        if not self._is_open:
            library = self._find_library()  # a driver may be installed while we wait for it
            if library is not None:
                preload(library)
            self._nvml.open()
            self._is_open = True

    def _drop(self) -> None:
        """Close the library, and forget what holds only while it is open."""
        self._end_watch()
        self._handles = {}
        self._ancestors = {}
        self._p2p = {}
        self._far_ends = {}
        self._is_watch_due = True
        if self._is_open:
            self._is_open = False
            _quietly(self._nvml.close)


def _known(values: PairValues) -> dict[tuple[str, str], int]:
    return {pair: value for pair, value in values.items() if value is not None}


def _check_library(error: NvmlError) -> None:
    """Raise an error that is not about one GPU."""
    if error.code in LIBRARY_GONE_CODES:
        raise error


def _quietly(release: Callable[[], None]) -> None:
    """Release something whose owner may be gone already."""
    try:
        release()
    except NvmlError:
        return
