"""Watches the machine: which devices become unhealthy or recover, and which links changed.

Calls a `MachineReader` in a worker thread, one call at a time, and reports to its `HealthView` on
the event loop: the devices that are unhealthy, at every change, and the machine's reading, where it
changed. `plugin.health.state` decides what is unhealthy.

- `wait` is called again and again, each time for `wait_s`; a call cannot be broken off, so that is
  also how long cancelling may take.
- `faults` is called every `poll_s`, as there are machines that report no events, and GPUs that are
  lost without one; and after an event that counts, but for that reason never sooner than `settle_s`
  after the last time.
- `read` is called every `reread_s`, and `settle_s` after an event that counts or where other GPUs
  are at fault (links go down with a GPU, and a fault may be about a link), but for that reason not
  sooner than `gap_s` after the last time.

A reader that fails is called again, after growing delays (`MAX_DELAY_S`); what was known stays.
After `N_UNRESPONSIVE` failed polls in a row, or when a call does not return within `deadline_s`,
the whole machine counts as unhealthy until a poll succeeds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from plugin.errors import PluginError
from plugin.machine import EventKind
from topology.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from plugin.health.state import HealthState
    from plugin.machine import Device, GpuEvent, MachineReader, MachineReading

__all__ = ["HealthTimes", "HealthWatch"]

T = TypeVar("T")

N_UNRESPONSIVE = 3
"""Failed polls in a row after which the machine counts as unresponsive: some three seconds, which
the reload of a driver may need. NVIDIA's plugin gives up at the first error, for good."""
FIRST_DELAY_S = 1.0
"""Before a reader that failed is called again; doubled with each failure in a row."""
MAX_DELAY_S = 5.0
"""Longest such delay: a driver that was loaded again is noticed that late at most."""
GIVE_UP_S = 1.0
"""How long cancelling waits for a call that is under way."""

READER_ERRORS = (PluginError, TopologyError, OSError)
"""Errors of a machine that cannot be read; any other is a bug."""


@dataclass(frozen=True, slots=True)
class HealthTimes:
    """When to look; all in seconds.

    - `wait_s` 0.8: cancelling takes less than a second.
    - `poll_s` 5: a GPU that is lost without an event is offered for that long at most.
      NVIDIA's plugin only waits for events.
    - `reread_s` 300: some 3,100 driver calls on 8 GPUs; new partitions and links that came back are
      seen that late.
    - `settle_s` 1: the links of a GPU that fails do not all go down in the same instant.
    - `gap_s` 5: a storm of errors may cost as much as a reading every five seconds.
    - `deadline_s` 60: reading the links of 8 GPUs took 30 s on one machine
      (k8s-device-plugin issue 774).
    """

    wait_s: float = 0.8
    poll_s: float = 5.0
    reread_s: float = 300.0
    settle_s: float = 1.0
    gap_s: float = 5.0
    deadline_s: float = 60.0


class HealthView(Protocol):
    """The receiver of changes. All is called on the event loop and must not wait."""

    def devices(self) -> Iterable[Device]:
        """The devices that are served now."""
        ...

    def see_health(self, unhealthy: Mapping[str, str]) -> None:
        """Devices that are unhealthy: reason by id. Called when that changed."""
        ...

    def see_reading(self, reading: MachineReading) -> None:
        """The machine was read and has changed; `see_health` follows before anything else."""
        ...


class HealthLog(Protocol):
    """The log of the watch."""

    def gpu_event(self, event: GpuEvent, *, counts: bool) -> None:
        """An event of a GPU; `counts` where it makes devices unhealthy."""
        ...

    def reader_failed(self, what: str, reason: str, *, n_failures: int) -> None:
        """A call of the reader failed, for the n-th time in a row."""
        ...

    def reader_works(self, what: str) -> None:
        """A call that had failed works again."""
        ...


class HealthWatch:
    """`run` watches until cancelled.

    `reading` is what `view` knows of the machine already, `state` its known faults. No other caller
    may use the reader meanwhile; it may be closed when `run` has ended.
    """

    def __init__(  # noqa: PLR0913 - the three doors, what is known, and what tests replace
        self,
        reader: MachineReader,
        view: HealthView,
        *,
        log: HealthLog,
        reading: MachineReading,
        state: HealthState,
        times: HealthTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._reader = reader
        self._view = view
        self._log = log
        self._clock = clock
        self._sleep = sleep
        self._times = times or HealthTimes()
        self._state = state
        self._reading = reading
        self._lost = frozenset(reading.faults)
        self._unhealthy: Mapping[str, str] = {}
        self._failures: Counter[str] = Counter()
        self._poll_at_s = self._last_poll_s = self._last_read_s = clock()
        self._read_at_s = clock() + self._times.reread_s

    @property
    def state(self) -> HealthState:
        """All known faults, for the next watch of the same machine."""
        return self._state

    async def run(self) -> None:
        """Watch until cancelled; the first poll is made at once."""
        while True:
            now_s = self._clock()
            if now_s >= self._poll_at_s:
                await self._poll()
            if now_s >= self._read_at_s:
                await self._read()
            await self._wait()

    def report(self) -> None:
        """Report what is unhealthy, if that changed. Call it when other devices are served."""
        unhealthy = self._state.unhealthy(self._view.devices())
        if unhealthy != self._unhealthy:
            self._unhealthy = unhealthy
            self._view.see_health(unhealthy)

    # --- the three calls ---

    async def _wait(self) -> None:
        events = await self._call("wait", self._reader.wait, self._times.wait_s)
        if events is None:
            self._poll_soon()  # an event may have been missed
            await self._sleep(self._delay_s("wait"))
            return
        for event in events:
            counts = self._state.counts(event)
            self._log.gpu_event(event, counts=counts)
            self._state = self._state.after_event(event, self._clock())
            if counts or event.kind is EventKind.LOST_EVENTS:
                self._poll_soon()
                self._reread_soon()
        self.report()

    async def _poll(self) -> None:
        faults = await self._call("faults", self._reader.faults)
        now_s = self._last_poll_s = self._clock()
        if faults is None:
            self._poll_at_s = now_s + self._delay_s("faults")
            if self._failures["faults"] >= N_UNRESPONSIVE:
                self._state = self._state.after_no_response("the machine's GPUs do not respond")
        else:
            self._poll_at_s = now_s + self._times.poll_s
            lost = frozenset(faults)
            if lost != self._lost:
                self._lost = lost
                self._reread_soon()
            self._state = self._state.after_poll(faults, now_s)
        self.report()

    async def _read(self) -> None:
        reading = await self._call("read", self._reader.read)
        self._last_read_s = self._clock()
        delay_s = self._times.reread_s if reading is not None else self._delay_s("read")
        self._read_at_s = self._last_read_s + delay_s
        if reading is not None and reading != self._reading:
            self._reading = reading
            self._view.see_reading(reading)
            self.report()

    # --- when ---

    def _poll_soon(self) -> None:
        soonest_s = self._last_poll_s + self._times.settle_s
        self._poll_at_s = min(self._poll_at_s, max(soonest_s, self._clock()))

    def _reread_soon(self) -> None:
        soonest_s = self._last_read_s + self._times.gap_s
        settled_s = self._clock() + self._times.settle_s
        self._read_at_s = min(self._read_at_s, max(soonest_s, settled_s))

    def _delay_s(self, what: str) -> float:
        """The delay after this many failures in a row: 1 s, 2 s, 4 s, then `MAX_DELAY_S`."""
        doublings = min(self._failures[what] - 1, 30)  # any delay is at its cap by then
        return min(FIRST_DELAY_S * (1 << doublings), MAX_DELAY_S)

    # --- the thread ---

    async def _call(self, what: str, call: Callable[..., T], *args: float) -> T | None:
        """The result of a call of the reader; None where it failed."""
        try:
            answer = await self._in_thread(what, call, *args)
        except READER_ERRORS as error:
            self._failures[what] += 1
            n_failures = self._failures[what]
            self._log.reader_failed(what, str(error), n_failures=n_failures)
            return None
        if self._failures.pop(what, 0):
            self._log.reader_works(what)
        return answer

    async def _in_thread(self, what: str, call: Callable[..., T], *args: float) -> T:
        """Run a call in a thread, to its end even where we are cancelled (up to `GIVE_UP_S`)."""
        running = asyncio.ensure_future(asyncio.to_thread(call, *args))
        try:
            done, _ = await asyncio.wait({running}, timeout=self._times.deadline_s)
            if not done:
                self._mark_unresponsive(what)
                await asyncio.wait({running})
        except asyncio.CancelledError:
            await asyncio.wait({running}, timeout=GIVE_UP_S)
            running.add_done_callback(_drop)
            raise
        return running.result()

    def _mark_unresponsive(self, what: str) -> None:
        """A call does not return: without a health check no device may be allocated."""
        reason = f"the driver does not answer ({what}, {self._times.deadline_s:g} s)"
        self._failures[what] += 1
        self._log.reader_failed(what, reason, n_failures=self._failures[what])
        self._state = self._state.after_no_response(reason)
        self.report()
        self._poll_soon()


def _drop(call: asyncio.Future[T]) -> None:
    """Retrieve the result of an abandoned call, so that asyncio does not log it."""
    if not call.cancelled():
        call.exception()
