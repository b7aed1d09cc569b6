"""The events of the GPUs that respond, over the life of several event sets.

- NVML's wait cannot be woken. `wait` therefore waits in slices of `slice_s`, which is also how long
  `release` and `close` may take.
- The set is made again when other GPUs respond than before, when one that could not register was at
  fault and has recovered, when GPUs that were late to register have answered, and after an error,
  which may leave it undefined; since events may be lost between, the first result then is
  LOST_EVENTS.
- A waiter never waits for a thread that reads the machine: it holds its own locks only.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from plugin.machine import EventKind, GpuEvent
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.nvml.events import EventWatch
from plugin.nvidia.nvml.gpu_calls import GpuCalls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.nvidia.nvml.library import Handle, Nvml
    from plugin.nvidia.nvml.timing import NvmlTiming

__all__ = ["EventSource"]


class EventSource:
    """`wait` from one thread at a time; the other methods from any."""

    def __init__(self, nvml: Nvml, timing: NvmlTiming) -> None:
        self._nvml = nvml
        self._timing = timing
        self._calls = GpuCalls(timing)
        self._closed = threading.Event()
        self._lock = threading.Lock()  # which GPUs, and when the set is due; held for no call
        self._in_use = threading.Lock()  # the set itself; taken alone
        self._handles: dict[str, Handle] = {}
        self._is_due = False
        self._has_late = False
        self._has_changed = False
        self._watch: EventWatch | None = None
        self._was_watched = False
        self._pause_s = self._timing.pause_s
        self._resume_at_s = 0.0
        self._without_events: frozenset[str] = frozenset()

    @property
    def without_events(self) -> frozenset[str]:
        """Uuids of the GPUs that respond and report no XIDs; () before the first `wait`."""
        return self._without_events

    def follow(self, handles: Mapping[str, Handle]) -> None:
        """From now on the events of these GPUs (handle by uuid), while the library is open."""
        with self._lock:
            self._handles, self._is_due = dict(handles), True

    def note_change(self) -> None:
        """Let the next `wait` report lost events: something has changed without an event."""
        with self._lock:
            self._has_changed = True

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """What happened; where NVML reports no events this only waits."""
        deadline_s = self._timing.clock() + timeout_s
        slice_s = self._timing.slice_s
        while not self._closed.is_set():
            with self._in_use:
                is_new = self._renew() or self._is_changed()
                watch = self._watch
                left_s = max(0.0, deadline_s - self._timing.clock())
                if watch is not None and not is_new:
                    events = self._wait_slice(watch, min(slice_s, left_s))
                    if events or left_s <= slice_s:
                        return events
            if is_new:
                return (GpuEvent(EventKind.LOST_EVENTS),)
            if watch is None:
                self._closed.wait(left_s)
                return ()
        return ()

    def release(self) -> bool:
        """Free the set, as the library is to be closed; False where a call still uses it."""
        with self._lock:
            self._handles, self._is_due = {}, False
        if not self._in_use.acquire(timeout=self._timing.release_s):
            return False
        try:
            self._free()
        finally:
            self._in_use.release()
        return not self._calls.outstanding()

    def close(self) -> None:
        """End a `wait` under way, within `slice_s`."""
        self._closed.set()

    def _wait_slice(self, watch: EventWatch, slice_s: float) -> tuple[GpuEvent, ...]:
        try:
            events = watch.wait(slice_s)
        except NvmlError:
            self._free()
            with self._lock:
                self._is_due = True
            self._resume_at_s = self._timing.clock() + self._pause_s
            self._pause_s = min(2 * self._pause_s, self._timing.max_pause_s)
            return ()
        self._pause_s = self._timing.pause_s
        return events

    def _renew(self) -> bool:
        """Make the set again where it is due; whether events may be lost since the last one."""
        late_answered = self._has_late and not self._calls.outstanding()
        with self._lock:
            is_due = (self._is_due or late_answered) and bool(self._handles)
            if not is_due or self._timing.clock() < self._resume_at_s:
                return False
            handles, self._is_due = self._handles, False
        self._free()
        try:
            watch = EventWatch(self._nvml, handles, self._calls, register_s=self._timing.poll_s)
        except NvmlError:
            self._without_events = frozenset(handles)
        else:
            self._without_events = frozenset(handles) - watch.heard
            self._watch = watch
            if not watch.heard:
                self._free()
        self._has_late = bool(self._calls.outstanding())
        is_new, self._was_watched = self._was_watched, True
        return is_new

    def _is_changed(self) -> bool:
        with self._lock:
            has_changed, self._has_changed = self._has_changed, False
            return has_changed

    def _free(self) -> None:
        """Free the set, unless a call that registers a GPU still uses it."""
        watch, self._watch = self._watch, None
        if watch is not None and not self._calls.outstanding():
            with contextlib.suppress(NvmlError):  # the driver may be gone already
                watch.close()
