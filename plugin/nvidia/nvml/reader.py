"""Reads the machine through NVML and the kernel: a `plugin.machine.reader.MachineReader`.

A GPU that is lost or hangs, or a call that the driver lacks, costs what it concerns and nothing
else: the rest is read, and the GPU stays listed with the values of its last good reading.

Method:

- Each GPU is called in a thread of its own, all at once (`plugin.nvidia.nvml.gpu_calls`). One that
  does not answer within `poll_s` or `read_s` is at fault until a later poll is answered, and is not
  called while its call is outstanding. Calls about no GPU have threads of their own, too.
- What lies between two GPUs (PCIe ancestor, P2P) and where a NVLink ends does not change while the
  driver runs, so it is read once and kept by uuid; all else is read again by each `read`.
- `faults` makes two calls for each GPU, three with a fabric, and one for each MIG device, as some
  drivers report no change of MIG; one that is gone counts as lost events, as does, once, a GPU that
  comes back with MIG devices that were not read. A GPU that failed before is looked up by its
  uuid, so one that comes back is seen without a `read`.
- Where the library lost the driver (unloaded, reloaded) it is opened again, once for a call, unless
  a call is outstanding, under which it cannot be closed. A driver of another version cannot be
  opened by this process; the error says so.
- Events come by `plugin.nvidia.nvml.event_source`, which waits for none of this.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from plugin.errors import ReadingError
from plugin.machine import NO_ANSWER, MachineReading, ReaderCondition
from plugin.nvidia.nvml.discovery import NOT_LISTED, describe, unlinked_pairs, with_remembered
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.event_source import EventSource
from plugin.nvidia.nvml.gpu import (
    FABRIC_NOT_READY,
    LIBRARY_GONE_CODES,
    MIG_NOT_READ,
    QUIET_CODES,
    GpuReader,
)
from plugin.nvidia.nvml.gpu_calls import GpuCalls
from plugin.nvidia.nvml.library import Nvml, NvmlCode, fault_text, preload
from plugin.nvidia.nvml.raw_machine import RawGpu, RawMachine, UnreadGpu, pair_key
from plugin.nvidia.nvml.timing import NvmlTiming
from plugin.sysfs import Sysfs
from topology.errors import InvalidTopology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from plugin.machine import GpuEvent, Partition
    from plugin.nvidia.nvml.gpu import FarEnds
    from plugin.nvidia.nvml.library import Handle

__all__ = ["NvmlMachine"]

T = TypeVar("T")

_TIMING = NvmlTiming()

PairValues = dict[tuple[str, str], "int | None"]
"""By pair of uuids; None where NVML has no value."""

_CONTAINER_CODES = frozenset({NvmlCode.LIB_RM_VERSION_MISMATCH, NvmlCode.UNKNOWN})
"""Codes of opening the library that the same container meets for ever: the driver was replaced
while its library is mounted here, or the container's control group has lost the device nodes (after
`systemctl daemon-reload`; nvidia-container-toolkit issue 48)."""
_UNKNOWN_ERROR = fault_text(NvmlError("", NvmlCode.UNKNOWN))
"""The fault of every GPU where the control group has lost all device nodes."""

_LIBRARY, _PAIRS = "library", "pairs"
"""Keys of the calls that are about no single GPU."""


@dataclass(frozen=True, slots=True)
class _Poll:
    """A GPU's fault, its handle where that is another than before, and whether MIG devices went."""

    fault: str | None = None
    handle: Handle | None = None
    lacks_instances: bool = False


class NvmlMachine:
    """This machine. Methods may be called from several threads, `wait` from one at a time."""

    def __init__(
        self,
        sysfs: Sysfs | None = None,
        *,
        find_library: Callable[[], Path | None] = lambda: None,
        timing: NvmlTiming = _TIMING,
    ) -> None:
        """`find_library` gives NVML's file; None leaves it to the loader's own search."""
        self._sysfs = sysfs or Sysfs()
        self._find_library = find_library
        self._nvml = Nvml()
        self._timing = timing
        self._calls = GpuCalls(timing)
        self._events = EventSource(self._nvml, timing)
        self._lock = threading.RLock()  # the library, and all that was read from it
        self._closed = threading.Event()
        self._is_open = False
        self._library_fault = ""  # where only a new container may mend it
        self._gpus_fault = ""  # of all GPUs, and of that kind
        self._gpus: tuple[RawGpu, ...] = ()
        self._handles: dict[str, Handle] = {}
        self._at_fault: set[str] = set()  # by a poll or reading since the last reading without
        self._unread_mig: set[str] = set()  # with that fault in the last poll
        self._answered: set[str] = set()
        self._ancestors: PairValues = {}
        self._p2p: PairValues = {}
        self._far_ends: FarEnds = {}

    # --- reading ---

    def read(self) -> MachineReading:
        """Read everything.

        Raises `NvmlError` where there is no driver, or it does not answer; `ReadingError` where no
        GPU's uuid can be read and none could before, or the values contradict each other.
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

    def condition(self) -> ReaderCondition:
        """GPUs without events; and what a new process, in a new container, may mend.

        That is a GPU that answered and hangs now, and a library that only a new container has: of
        the driver's version, or with the device nodes that its control group has lost.
        """
        can_answer = {_LIBRARY, *self._answered}
        hanging = sorted(self._calls.late() & can_answer)
        library_fault = self._library_fault or self._gpus_fault
        reason = f"{NO_ANSWER} ({hanging[0]})" if hanging else library_fault
        return ReaderCondition(self._events.without_events, reason)

    def _retried(self, call: Callable[[], T]) -> T:
        """A call's value; where the library lost its driver, it is opened again first."""
        try:
            return self._with_library(call)
        except NvmlError as error:
            if error.code not in LIBRARY_GONE_CODES or not self._drop():
                raise
            return self._with_library(call)

    def _with_library(self, call: Callable[[], T]) -> T:
        try:
            self._open()
        except NvmlError as error:
            self._library_fault = fault_text(error) if error.code in _CONTAINER_CODES else ""
            raise
        self._library_fault = ""
        return call()

    def _read(self) -> MachineReading:
        known_at = {gpu.index: gpu.uuid for gpu in self._gpus}
        count = self._call_library(self._nvml.count, self._timing.poll_s)
        keys = [known_at.get(index, f"GPU {index}") for index in range(count)]
        answers = self._calls.run(
            {key: partial(self._read_gpu, index) for index, key in enumerate(keys)},
            self._timing.read_s,
        )
        found: list[RawGpu] = []
        unread: list[UnreadGpu] = []
        handles: dict[str, Handle] = {}
        gpu_notes: dict[str, None] = {}
        for index, key in enumerate(keys):
            answer = answers.get(key)
            if answer is None:
                unread.append(UnreadGpu(index, NO_ANSWER))
            elif isinstance(answer, UnreadGpu):
                unread.append(answer)
            else:
                gpu, handles[gpu.uuid], notes = answer
                found.append(gpu)
                gpu_notes |= dict.fromkeys(notes)
        gpus, notes = with_remembered(found, unread, self._gpus)
        if not gpus:
            reason = "; ".join(gpu.reason for gpu in unread) or "NVML counts none"
            msg = f"no GPU can be read, expected at least one: {reason}"
            raise ReadingError(msg)
        faults = {gpu.uuid: gpu.fault for gpu in gpus if gpu.fault is not None}
        recovered = self._at_fault - faults.keys()
        if handles.keys() != self._handles.keys() or recovered & self._events.without_events:
            self._events.follow(handles)
        self._gpus, self._handles, self._at_fault = gpus, handles, set(faults)
        self._note_gpus_fault(faults)
        self._answered |= handles.keys()
        gpu_notes |= dict.fromkeys(self._read_pairs(found))
        raw = RawMachine(
            gpus=gpus,
            ancestors=_known(self._ancestors),
            p2p=_known(self._p2p),
            nics=self._sysfs.nics(),
            cpu=self._sysfs.cpu(),
            numa_distances=self._sysfs.numa_distances(),
            driver_version=self._driver_version(),
            notes=(*notes, *gpu_notes),
        )
        try:
            return describe(raw)
        except InvalidTopology as error:
            msg = f"NVML and sysfs contradict each other: {error}"
            raise ReadingError(msg) from error

    def _read_gpu(self, index: int) -> tuple[RawGpu, Handle, tuple[str, ...]] | UnreadGpu:
        """The GPU of an index, its handle, and notes."""
        try:
            handle = self._nvml.handle(index)
            uuid = self._nvml.uuid(handle)
        except NvmlError as error:
            _check_library(error)
            return UnreadGpu(index, fault_text(error))
        gpu_reader = GpuReader(self._nvml, self._sysfs, self._far_ends)
        gpu = gpu_reader.read(index, handle, uuid)
        return gpu, handle, gpu_reader.notes

    def _driver_version(self) -> str | None:
        try:
            return self._call_library(self._nvml.driver_version, self._timing.poll_s)
        except NvmlError:
            return None

    def _read_pairs(self, found: Sequence[RawGpu]) -> tuple[str, ...]:
        """Read what lies between the GPUs and is not known yet; notes of what could not be."""
        healthy = [gpu for gpu in found if gpu.fault in {None, FABRIC_NOT_READY}]
        gpu_reader = GpuReader(self._nvml, self._sysfs, self._far_ends)
        for pairs, known, call in (
            (combinations(healthy, 2), self._ancestors, self._nvml.common_ancestor),
            (unlinked_pairs(healthy), self._p2p, self._nvml.p2p_read_status),
        ):
            wanted = {
                pair_key(a.uuid, b.uuid): (self._handles[a.uuid], self._handles[b.uuid])
                for a, b in pairs
                if pair_key(a.uuid, b.uuid) not in known
            }
            if wanted:
                reading = partial(_pair_values, wanted, call, gpu_reader)
                known.update(
                    self._calls.run({_PAIRS: reading}, self._timing.read_s).get(_PAIRS, {})
                )
        return gpu_reader.notes

    def _faults(self) -> Mapping[str, str]:
        answers = self._calls.run(
            {gpu.uuid: partial(self._poll, gpu) for gpu in self._gpus}, self._timing.poll_s
        )
        polls = {gpu.uuid: answers.get(gpu.uuid, _Poll(NO_ANSWER)) for gpu in self._gpus}
        new_handles = {uuid: one.handle for uuid, one in polls.items() if one.handle is not None}
        if new_handles:
            self._handles |= new_handles
            self._events.follow(self._handles)
        unread_mig = {uuid for uuid, one in polls.items() if one.fault == MIG_NOT_READ}
        if unread_mig - self._unread_mig or any(one.lacks_instances for one in polls.values()):
            self._events.note_change()
        self._unread_mig = unread_mig
        faults = {uuid: one.fault for uuid, one in polls.items() if one.fault is not None}
        self._at_fault |= faults.keys()
        self._note_gpus_fault(faults)
        return faults

    def _note_gpus_fault(self, faults: Mapping[str, str]) -> None:
        is_unknown = all(faults.get(gpu.uuid) == _UNKNOWN_ERROR for gpu in self._gpus)
        self._gpus_fault = _UNKNOWN_ERROR if is_unknown else ""

    def _poll(self, gpu: RawGpu) -> _Poll:
        """Poll a GPU; one at fault is looked for, as it may have a new handle by now."""
        gpu_reader = GpuReader(self._nvml, self._sysfs, self._far_ends)
        fault_of = partial(gpu_reader.fault_of, was_at_fault=gpu.uuid in self._at_fault)
        known = self._handles.get(gpu.uuid)
        if known is not None and fault_of(known, gpu) is None:
            return _Poll(lacks_instances=any(map(self._is_gone, gpu.instances)))
        try:
            handle = self._nvml.handle_of(gpu.uuid)
        except NvmlError as error:
            _check_library(error)
            is_gone = error.code == NvmlCode.NOT_FOUND
            return _Poll(NOT_LISTED if is_gone else fault_text(error))
        is_new = known is None or self._nvml.address(known) != self._nvml.address(handle)
        return _Poll(fault_of(handle, gpu), handle if is_new else None)

    def _is_gone(self, instance: Partition) -> bool:
        """Whether NVML does not know a MIG device any more; other errors do not say so."""
        try:
            self._nvml.handle_of(instance.id)
        except NvmlError as error:
            _check_library(error)
            return error.code == NvmlCode.NOT_FOUND
        return False

    # --- events ---

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """What happened; where NVML reports no events, or is missing, this only waits."""
        return self._events.wait(timeout_s)

    # --- the library ---

    def close(self) -> None:
        """End a `wait` under way and shut the library down; takes seconds at most.

        The library stays open while a call hangs in it.
        """
        self._closed.set()
        self._events.close()
        if self._lock.acquire(timeout=self._timing.close_s):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _call_library(self, call: Callable[[], T], limit_s: float) -> T:
        """The value of a call about no single GPU. Raises `NvmlError` where none comes in time."""
        answers = self._calls.run({_LIBRARY: call}, limit_s)
        if _LIBRARY not in answers:
            raise NvmlError(NO_ANSWER)
        return answers[_LIBRARY]

    def _open(self) -> None:
        if self._closed.is_set():
            msg = "the machine is closed, expected no further call"
            raise ReadingError(msg)
        if not self._is_open:
            library = self._find_library()  # a driver may be installed while we wait for it
            if library is not None:
                preload(library)
            self._call_library(self._open_once, self._timing.read_s)

    def _open_once(self) -> None:
        """Open the library, which counts how often that is done; also where we wait no longer."""
        if not self._is_open:
            self._nvml.open()
            self._is_open = True

    def _drop(self) -> bool:
        """Close the library, and forget what holds only while it is open.

        False where a call is outstanding: nothing is done then.
        """
        if self._calls.outstanding() or not self._events.release():
            return False
        self._gpus_fault = ""
        self._handles = {}
        self._ancestors = {}
        self._p2p = {}
        self._far_ends = {}
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(NvmlError):  # the driver may be gone already
                self._call_library(self._nvml.close, self._timing.poll_s)
        return True


def _pair_values(
    wanted: Mapping[tuple[str, str], tuple[Handle, Handle]],
    call: Callable[[Handle, Handle], int],
    gpu_reader: GpuReader,
) -> PairValues:
    """The values of these pairs; one that failed unexpectedly is left out, to be read again."""
    values: PairValues = {}
    for key, (a, b) in wanted.items():
        try:
            values[key] = call(a, b)
        except NvmlError as error:
            gpu_reader.note_error(error)
            if error.code == NvmlCode.FUNCTION_NOT_FOUND:
                break  # this driver does not have the call
            if error.code in QUIET_CODES:
                values[key] = None
    return values


def _known(values: PairValues) -> dict[tuple[str, str], int]:
    return {pair: value for pair, value in values.items() if value is not None}


def _check_library(error: NvmlError) -> None:
    """Raise an error that is not about one GPU."""
    if error.code in LIBRARY_GONE_CODES:
        raise error
