"""Calls of the driver about several GPUs at once, each in a thread of its own, with a deadline.

A call of the driver cannot be broken off. One that does not return in time keeps its thread, and
its key (a GPU) gets no further call until it has returned; the other keys do. What a late call
returns is dropped. The threads are daemons, so that none of them keeps the process from ending.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from plugin.nvidia.nvml.timing import NvmlTiming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["GpuCalls"]

T = TypeVar("T")

_TIMING = NvmlTiming()


@dataclass(slots=True)
class _Call(Generic[T]):
    call: Callable[[], T]
    done: threading.Event = field(default_factory=threading.Event)
    answers: list[T] = field(default_factory=list["T"])
    error: BaseException | None = None

    def run(self) -> None:
        try:
            self.answers.append(self.call())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self.error = error
        finally:
            self.done.set()


class GpuCalls:
    """May be used from several threads."""

    def __init__(self, timing: NvmlTiming = _TIMING) -> None:
        self._timing = timing
        self._lock = threading.Lock()
        self._last: dict[str, threading.Event] = {}
        self._late: dict[str, threading.Event] = {}

    def run(self, calls: Mapping[str, Callable[[], T]], limit_s: float) -> dict[str, T]:
        """The answers that come within the limit, by key; waits for all of them that long.

        A key whose last call is outstanding is not called. Raises the first error of a call, in the
        order of the keys, once all have returned or are late.
        """
        timing = self._timing
        deadline_s = timing.clock() + limit_s
        outstanding = self.outstanding()
        begun = {
            key: self._begin(key, call) for key, call in calls.items() if key not in outstanding
        }
        answers: dict[str, T] = {}
        errors: list[BaseException] = []
        for key, one in begun.items():
            if not timing.has_returned(key, one.done, max(0.0, deadline_s - timing.clock())):
                with self._lock:
                    self._late[key] = one.done
                continue
            if one.error is not None:
                errors.append(one.error)
            else:
                answers[key] = one.answers[0]
        if errors:
            raise errors[0]
        return answers

    def outstanding(self) -> frozenset[str]:
        """The keys whose last call has not returned."""
        return self._not_done(self._last)

    def late(self) -> frozenset[str]:
        """The keys of which a call passed its limit and has still not returned."""
        return self._not_done(self._late)

    def _not_done(self, calls: Mapping[str, threading.Event]) -> frozenset[str]:
        with self._lock:
            return frozenset(key for key, done in calls.items() if not done.is_set())

    def _begin(self, key: str, call: Callable[[], T]) -> _Call[T]:
        one = _Call(call)
        with self._lock:
            self._last[key] = one.done
        threading.Thread(target=one.run, name=f"nvml {key}", daemon=True).start()
        return one
