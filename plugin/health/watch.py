"""Watches the machine: which devices become unhealthy or recover, and which links changed.

Calls a `MachineReader` in threads and reports to its `HealthView` on the event loop: the devices
that are unhealthy, at every change, and the machine's reading, where it changed.
`plugin.health.state` decides what is unhealthy.

- `wait` is called again and again, each time for `wait_s`, beside the other two: an event is seen
  while they wait for a GPU. A call cannot be broken off; a cancelled one is waited for, up to
  `give_up_s`.
- `faults` is called every `poll_s`, as there are machines that report no events, and GPUs that are
  lost without one; and after an event that counts, but for that reason never sooner than `settle_s`
  after the last time.
- `read` is called every `reread_s`, and `settle_s` after an event that counts or where other GPUs
  are at fault (links go down with a GPU, and a fault may be about a link), but for that reason not
  sooner than `gap_s` after the last time.

A reader that fails is called again, after growing delays (`MAX_DELAY_S`); what was known stays.
After `N_UNRESPONSIVE` failed polls in a row, or when a poll or a reading does not return within
`deadline_s`, the whole machine counts as unhealthy until a poll succeeds. A `wait` that does not
return costs the events, and no device its health.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from plugin.errors import READER_ERRORS, ReadingError
from plugin.machine import EventKind, ReaderCondition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from plugin.health.state import HealthState
    from plugin.machine import Device, GpuEvent, MachineReader, MachineReading
    from topology.annotations import LastingFault

__all__ = ["HealthTimes", "HealthWatch"]

T = TypeVar("T")

N_UNRESPONSIVE = 3
"""Failed polls in a row after which the machine counts as unresponsive: some three seconds, which
the reload of a driver may need. NVIDIA's plugin gives up at the first error, for good."""
FIRST_DELAY_S = 1.0
"""Before a reader that failed is called again; doubled with each failure in a row."""
MAX_DELAY_S = 5.0
"""Longest such delay: a driver that was loaded again is noticed that late at most."""

GONE = "it does not exist any more"
"""Why a device is unhealthy whose partition was removed: until the machine is served without it."""


class InThread(Protocol):
    """Runs a call that blocks, off the event loop."""

    def __call__(self, call: Callable[..., T], *args: float) -> Awaitable[T]:
        """The call's result, or its error."""
        ...


@dataclass(frozen=True, slots=True)
class HealthTimes:
    """When to look; all in seconds.

    - `wait_s` 0.8: cancelling takes less than a second.
    - `poll_s` 5: a GPU that is lost without an event is offered for that long at most.
      NVIDIA's plugin only waits for events.
    - `reread_s` 300: a reading makes up to 24 calls for each GPU, and most changes come with an
      event; new partitions and links that came back without one are seen that late.
    - `settle_s` 1: the links of a GPU that fails do not all go down in the same instant.
    - `gap_s` 5: a storm of errors may cost as much as a reading every five seconds.
    - `deadline_s` 150: a reader has deadlines of its own for each GPU (NVML's reader gives up after
      130 s at the latest); this is for a reader that does not keep them.
    - `restart_s` 300: a reset of a GPU or a new driver takes a minute or two, and a restart of the
      plugin interrupts allocation on all GPUs of the node.
    - `probe_s` 60: a liveness probe has that long for a restart that is due, that of deploy/ half a
      minute; then the watch ends.
    - `give_up_s` 1: cancelling waits for a call under way for that long.
    """

    wait_s: float = 0.8
    poll_s: float = 5.0
    reread_s: float = 300.0
    settle_s: float = 1.0
    gap_s: float = 5.0
    deadline_s: float = 150.0
    restart_s: float = 300.0
    probe_s: float = 60.0
    give_up_s: float = 1.0


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

    def see_condition(self, condition: ReaderCondition) -> None:
        """The condition of the reader itself has changed."""
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
    """`run` watches until cancelled; raises `ReadingError` where only a new process can go on.

    `reading` is what `view` knows of the machine already, `state` its known faults, whose times are
    those of the event loop. No other caller may use the reader meanwhile; it may be closed when
    `run` has ended. `in_thread` runs a call that blocks, and must not break it off.
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
        in_thread: InThread | None = None,
    ) -> None:
        self._reader = reader
        self._view = view
        self._log = log
        self._in_thread = in_thread or _in_daemon_thread
        self._times = times or HealthTimes()
        self._state = state
        self._reading = reading
        self._lost = frozenset(reading.faults)
        self._unhealthy: Mapping[str, str] = {}
        self._condition = ReaderCondition()
        self._failures: Counter[str] = Counter()
        self._poll_at_s = self._last_poll_s = self._last_read_s = self._read_at_s = 0.0
        self._is_sooner = asyncio.Event()
        self._began_s: dict[str, float] = {}
        self._unusable_since_s: float | None = None

    @property
    def state(self) -> HealthState:
        """All known faults, for the next watch of the same machine."""
        return self._state

    @property
    def condition(self) -> ReaderCondition:
        """The condition of the reader, as it was seen last."""
        return self._condition

    async def run(self) -> None:
        """Watch until cancelled; the first poll is made at once."""
        now_s = self._poll_at_s = self._last_poll_s = self._last_read_s = _now_s()
        self._read_at_s = now_s + self._times.reread_s
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_events())
            group.create_task(self._follow_machine())

    def restore(self, faults: Iterable[LastingFault], now_s: float) -> None:
        """Mark what an earlier process knew (`HealthState.with_lasting`)."""
        self._state = self._state.with_lasting(faults, now_s)
        self.report()

    def report(self) -> None:
        """Report what is unhealthy, if that changed. Call it when other devices are served."""
        unhealthy = self._gone() | self._state.unhealthy(self._view.devices())
        if unhealthy != self._unhealthy:
            self._unhealthy = unhealthy
            self._view.see_health(unhealthy)

    def _gone(self) -> dict[str, str]:
        """The devices whose partition was not found any more when the machine was read last."""
        found = {one.id for gpu in self._reading.gpus for one in gpu.partitions}
        return {
            device.id: GONE
            for device in self._view.devices()
            if device.partition is not None and device.partition.id not in found
        }

    def restart_due(self, now_s: float) -> str:
        """Why only a new process may help; empty: it need not. For any thread.

        `now_s` is of the event loop's clock.
        """
        restart_s = self._times.restart_s
        for what, began_s in tuple(self._began_s.items()):
            if now_s - began_s >= restart_s:
                return f"the driver does not answer ({what})"
        since_s = self._unusable_since_s
        if since_s is not None and now_s - since_s >= restart_s:
            return self._condition.restart_reason
        return ""

    # --- the three calls ---

    async def _follow_events(self) -> None:
        while True:
            events = await self._call("wait", self._reader.wait, self._times.wait_s)
            if events is None:
                self._poll_soon()  # an event may have been missed
                await asyncio.sleep(self._delay_s("wait"))
            else:
                self._see_events(events)
            self._check_reader()

    async def _follow_machine(self) -> None:
        while True:
            if _now_s() >= self._poll_at_s:
                await self._poll()
            if _now_s() >= self._read_at_s:
                await self._read()
            self._is_sooner.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(self._poll_at_s, self._read_at_s)):
                    await self._is_sooner.wait()

    def _see_events(self, events: Iterable[GpuEvent]) -> None:
        for event in events:
            counts = self._state.counts(event)
            self._log.gpu_event(event, counts=counts)
            self._state = self._state.after_event(event, _now_s())
            if counts or event.kind is EventKind.LOST_EVENTS:
                self._poll_soon()
                self._reread_soon()
        self.report()

    async def _poll(self) -> None:
        faults = await self._call("faults", self._reader.faults)
        now_s = self._last_poll_s = _now_s()
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
        self._check_reader()

    async def _read(self) -> None:
        reading = await self._call("read", self._reader.read)
        self._last_read_s = _now_s()
        delay_s = self._times.reread_s if reading is not None else self._delay_s("read")
        self._read_at_s = self._last_read_s + delay_s
        if reading is not None and reading != self._reading:
            self._reading = reading
            self._view.see_reading(reading)
            self.report()

    def _check_reader(self) -> None:
        condition = self._reader.condition()
        if not condition.restart_reason:
            self._unusable_since_s = None
        elif self._unusable_since_s is None:
            self._unusable_since_s = _now_s()
        if condition != self._condition:
            self._condition = condition
            self._view.see_condition(condition)
        reason = self.restart_due(_now_s() - self._times.probe_s)
        if reason:
            msg = f"{reason}: expected a restart of this process by its liveness probe"
            raise ReadingError(msg)

    # --- when ---

    def _poll_soon(self) -> None:
        soonest_s = self._last_poll_s + self._times.settle_s
        self._poll_at_s = min(self._poll_at_s, max(soonest_s, _now_s()))
        self._is_sooner.set()

    def _reread_soon(self) -> None:
        soonest_s = self._last_read_s + self._times.gap_s
        settled_s = _now_s() + self._times.settle_s
        self._read_at_s = min(self._read_at_s, max(soonest_s, settled_s))
        self._is_sooner.set()

    def _delay_s(self, what: str) -> float:
        """The delay after this many failures in a row: 1 s, 2 s, 4 s, then `MAX_DELAY_S`."""
        doublings = min(self._failures[what] - 1, 30)  # any delay is at its cap by then
        return min(FIRST_DELAY_S * (1 << doublings), MAX_DELAY_S)

    # --- the threads ---

    async def _call(self, what: str, call: Callable[..., T], *args: float) -> T | None:
        """The result of a call of the reader; None where it failed."""
        self._began_s[what] = _now_s()
        try:
            answer = await self._to_its_end(what, self._in_thread(call, *args))
        except READER_ERRORS as error:
            self._fail(what, str(error))
            return None
        finally:
            del self._began_s[what]
        if self._failures.pop(what, 0):
            self._log.reader_works(what)
        return answer

    async def _to_its_end(self, what: str, call: Awaitable[T]) -> T:
        """Wait for a call, also where we are cancelled (up to `give_up_s`)."""
        running = asyncio.ensure_future(call)
        try:
            done, _ = await asyncio.wait({running}, timeout=self._times.deadline_s)
            if not done:
                self._see_late(what)
                await asyncio.wait({running})
        except asyncio.CancelledError:
            await asyncio.wait({running}, timeout=self._times.give_up_s)
            running.add_done_callback(_drop)
            raise
        return running.result()

    def _see_late(self, what: str) -> None:
        """A call does not return: without a poll no device may be allocated."""
        reason = f"the driver does not answer ({what}, {self._times.deadline_s:g} s)"
        self._fail(what, reason)
        if what != "wait":
            self._state = self._state.after_no_response(reason)
            self.report()
        self._poll_soon()

    def _fail(self, what: str, reason: str) -> None:
        self._failures[what] += 1
        self._log.reader_failed(what, reason, n_failures=self._failures[what])


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _in_daemon_thread(call: Callable[..., T], *args: float) -> T:
    """As `asyncio.to_thread`, but a call that never returns does not keep the program running."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            answer = call(*args)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            settle = partial(done.set_exception, error)
        else:
            settle = partial(done.set_result, answer)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name=f"machine {call.__name__}", daemon=True).start()
    return await done


def _drop(call: asyncio.Future[T]) -> None:
    """Retrieve the result of an abandoned call, so that asyncio does not log it."""
    if not call.cancelled():
        call.exception()
