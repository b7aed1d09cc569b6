"""NVML's reader without deadlines: a call is late once it hangs, however long another takes."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from plugin.nvidia.nvml.reader import NvmlMachine
from plugin.nvidia.nvml.timing import NvmlTiming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plugin.sysfs import Sysfs

__all__ = ["Hang", "PatientMachine"]


class Hang(threading.Event):
    """Calls that wait for it hang; `callers` are the names of their threads.

    `n_calls` are all that ever did; `on_call` is called for each, in its thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.callers: set[str] = set()
        self.n_calls = 0
        self.on_call: Callable[[], object] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        """Hang until it is set."""
        name = threading.current_thread().name
        self.callers.add(name)
        self.n_calls += 1
        self.on_call()
        try:
            return super().wait(timeout)
        finally:
            self.callers.discard(name)


class PatientMachine(NvmlMachine):
    """`timing` are other values of `NvmlTiming`."""

    def __init__(self, sysfs: Sysfs, **timing: Any) -> None:
        self._hangs: list[Hang] = []
        super().__init__(sysfs, timing=NvmlTiming(has_returned=self._has_returned, **timing))

    @contextlib.contextmanager
    def hang(self) -> Iterator[Hang]:
        """What calls hang in meanwhile; they have returned in the end."""
        hang = Hang()
        self._hangs.append(hang)
        try:
            yield hang
        finally:
            callers = hang.callers.copy()  # others may hang in another one
            hang.set()
            for thread in threading.enumerate():
                if thread.name in callers:
                    thread.join(60)
            self._hangs.remove(hang)

    def give_up(self) -> None:
        """Let the calls that hang return, and those that come hang again."""
        for hang in self._hangs:
            hang.set()
            hang.clear()

    def _has_returned(self, key: str, done: threading.Event, _left_s: float) -> bool:
        while not done.wait(0.001):  # what ends this wait is either of two events
            if any(f"nvml {key}" in hang.callers for hang in self._hangs):
                return False
        return True
