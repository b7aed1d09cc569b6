"""Watching: what the reader says reaches the view, at the right time, and errors end nothing."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from plugin.errors import ReadingError
from plugin.health import HealthState, HealthTimes, HealthWatch
from plugin.machine import Device, EventKind, GpuEvent, ReaderCondition
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.xids import XidRules, read_xid_rules
from tests.unit.plugin.machine_values import device, mig_device, simulated_machine, xid_event
from tests.virtual_time import run_at_once
from topology.errors import InvalidTopology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.machine import MachineReading

READING = simulated_machine("4x-a100-sxm", node_name="n").read()
A, B = (gpu.uuid for gpu in READING.gpus[:2])
OTHER = replace(READING, notes=("other",))
XID = xid_event(A, 94)
IGNORED = xid_event(A, 31)
HEALTHY = HealthState(XidRules())
MISSED = GpuEvent(EventKind.LOST_EVENTS)
REASON = "XID 94, until its program is gone and it stays quiet"
BROKEN = NvmlError("no", 999)


T = TypeVar("T")


class EndError(Exception):
    """The script is over."""


class Stage:
    """A reader that plays a script in virtual time, the view and the log of a watch.

    Each call of `wait` plays a step: events to return, an error to raise, or a dict of what becomes
    of the machine (`reading`, `ill`, `health`). A step lasts `wait_s`, an error no time.
    """

    def __init__(self, *script: Any, **watch: Any) -> None:
        self.seconds = 0.0
        self.script = list(script)
        self.reading: MachineReading | Exception = READING
        self.ill: Mapping[str, str] | Exception = {}
        self.health = ReaderCondition()
        self.calls: list[tuple[str, float]] = []
        self.reported: list[tuple[float, Any]] = []
        self.lines: list[tuple[Any, ...]] = []
        self.served = [device(A, 0, A), device(B, 1, B)]
        self.news = asyncio.Event()
        given = {"reading": READING, "state": HEALTHY, "in_thread": self.in_turn, **watch}
        self.watch = HealthWatch(self, self, log=self, **given)

    def play(self) -> Stage:
        """Run the watch until the script is over."""
        with pytest.raises(ExceptionGroup) as caught:
            run_at_once(self.watch.run())
        assert caught.value.subgroup(EndError) is not None, caught.value.exceptions
        return self

    # --- time ---

    def note_time(self) -> float:
        """Seconds since the beginning."""
        self.seconds = round(asyncio.get_running_loop().time() - 1000, 3)
        return self.seconds

    async def in_turn(self, call: Callable[..., T], *args: float) -> T:
        """In place of a thread: `wait` lasts as long as its argument says, the others no time."""
        if call == self.wait and self.script and not isinstance(self.script[0], Exception):
            self.calls.append(("wait", self.note_time()))
            await asyncio.sleep(args[0])
        return call(*args)

    def at(self, what: str) -> list[float]:
        """When a call was made."""
        return [seconds for name, seconds in self.calls if name == what]

    def gaps(self, what: str) -> list[float]:
        """Seconds between two calls."""
        return [round(after - before, 3) for before, after in pairwise(self.at(what))]

    # --- the reader ---

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        assert timeout_s > 0
        if not self.script:
            raise EndError
        step = self.script.pop(0)
        if isinstance(step, Exception):
            self.calls.append(("wait", self.note_time()))
            raise step
        if isinstance(step, dict):
            for name, value in step.items():
                setattr(self, name, value)
            return ()
        return tuple(step)

    def faults(self) -> Mapping[str, str]:
        self.calls.append(("faults", self.note_time()))
        return answer(self.ill)

    def read(self) -> MachineReading:
        self.calls.append(("read", self.note_time()))
        return answer(self.reading)

    def condition(self) -> ReaderCondition:
        return self.health

    def close(self) -> None:
        raise AssertionError

    # --- the view and the log ---

    def devices(self) -> list[Device]:
        return self.served

    def see_health(self, unhealthy: Mapping[str, str]) -> None:
        self.see(dict(unhealthy))

    def see_reading(self, reading: MachineReading) -> None:
        self.see(reading)

    def see_condition(self, condition: ReaderCondition) -> None:
        self.see(condition)

    def see(self, what: Any) -> None:
        self.reported.append((self.note_time(), what))
        self.news.set()

    async def nth(self, n: int) -> Any:
        """The n-th report to the view, counted from 1."""
        while len(self.reported) < n:
            self.news.clear()
            await self.news.wait()
        return self.reported[n - 1][1]

    def gpu_event(self, event: GpuEvent, *, counts: bool) -> None:
        self.lines.append((event, counts))

    def reader_failed(self, what: str, reason: str, *, n_failures: int) -> None:
        self.lines.append((what, reason, n_failures))

    def reader_works(self, what: str) -> None:
        self.lines.append((what, "works"))


def answer(value: T | Exception) -> T:
    """What a reader returns, or raises."""
    if isinstance(value, Exception):
        raise value
    return value


QUIET = [()] * 8
"""Steps of 0.8 s in which nothing happens: more than a `poll_s`."""


def test_an_idle_machine_is_polled_and_nothing_is_reported():
    """An idle node must cost next to nothing, and no write at all."""
    stage = Stage(*[()] * 400).play()
    assert stage.reported == stage.lines == []
    assert stage.at("faults")[:4] == [0, 5, 10, 15]
    assert stage.at("read") == [300]
    n_wakes = sum(len(stage.at(what)) for what in ("wait", "faults", "read"))
    assert n_wakes / stage.seconds < 1.5


def test_an_event_is_reported_at_once_and_checked():
    """The kubelet must not allocate the GPU to another pod; the links may have changed with it."""
    stage = Stage([IGNORED], [XID], *QUIET).play()
    assert stage.reported == [(1.6, {A: REASON})]
    assert stage.lines == [(IGNORED, False), (XID, True)]
    assert stage.at("faults") == [0, 1.6, 6.6]
    assert stage.at("read") == [5]


def test_what_does_not_count_causes_no_work():
    """A program that faults in a loop sends thousands of XID 31."""
    stage = Stage(*[[IGNORED] * 50] * 6, [GpuEvent(EventKind.ECC, A)]).play()
    assert stage.reported == []
    assert stage.at("faults") == [0, 5]
    assert stage.at("read") == []


def test_many_events_are_read_after_once_in_a_while():
    """A storm of errors must not turn into a storm of readings: each is thousands of calls."""
    stage = Stage(*[[XID, XID]] * 25).play()
    assert min(stage.gaps("faults")) == 1
    assert stage.gaps("read") == [5, 5]
    assert stage.reported == [(0.8, {A: REASON})]


def test_lost_events_mean_look_at_everything():
    """What was missed may be anything, so GPUs and links are read again."""
    stage = Stage(*QUIET, [MISSED], *QUIET).play()
    assert stage.at("faults") == [0, 5, 7.2, 12.2]
    assert stage.at("read") == [8.2]
    assert stage.reported == []


def test_a_gpu_recovers_without_a_restart():
    """NVIDIA's plugin would have to be restarted."""
    stage = Stage([XID], *[()] * 90).play()
    (marked_s, marked), (recovered_s, recovered) = stage.reported
    assert (marked_s, marked, recovered) == (0.8, {A: REASON}, {})
    assert 60.8 <= recovered_s <= 60.8 + 5.6


def test_a_lost_gpu_is_found_by_polling_and_comes_back():
    """Some GPUs vanish without an event."""
    stage = Stage({"ill": {B: "lost"}}, *QUIET, {"ill": {}}, *QUIET).play()
    assert stage.reported == [(5, {B: "lost"}), (10, {})]
    assert stage.at("read") == [6, 11]  # its links went down and came back


def test_a_gpu_that_was_lost_before_is_no_news():
    """The first reading said so already."""
    reading = replace(READING, gpus=(replace(READING.gpus[0], fault="x"), *READING.gpus[1:]))
    stage = Stage(*QUIET, reading=reading)
    stage.ill = {A: "lost"}
    stage.play()
    assert stage.reported == [(0, {A: "lost"})]
    assert stage.at("read") == []


def test_a_new_reading_is_reported_once():
    """Links or MIG instances changed: the topology is published once for each change."""
    stage = Stage([XID], {"reading": OTHER}, *QUIET, [XID], *QUIET).play()
    assert [what for _, what in stage.reported] == [{A: REASON}, OTHER]
    assert len(stage.at("read")) == 2


def test_new_devices_are_judged_with_the_reading_that_brought_them():
    """MIG instances of a bad GPU must not be offered until the next poll."""
    stage = Stage([XID], *QUIET)
    stage.reading = OTHER
    see_reading = stage.see_reading

    def serve_more(reading: MachineReading) -> None:
        see_reading(reading)
        stage.served = [device("MIG-1", 0, A), device(B, 1, B)]

    stage.see_reading = serve_more  # type: ignore[method-assign]
    stage.play()
    assert stage.reported[1:] == [(5, OTHER), (5, {"MIG-1": REASON})]


def test_a_partition_that_is_gone_is_unhealthy_at_once():
    """Serving the machine without it may take long, or fail."""
    part, other = mig_device("MIG-1", "1g.5gb", 0, 1, 0), mig_device("MIG-2", "1g.5gb", 1, 2, 0)
    split = replace(READING.gpus[0], is_partitioned=True, partitions=(part, other))
    before = replace(READING, gpus=(split, *READING.gpus[1:]))
    after = replace(before, gpus=(replace(split, partitions=(part,)), *READING.gpus[1:]))
    stage = Stage([MISSED], *QUIET, reading=before)
    stage.reading = after
    stage.served = [device(one.id, 0, A, partition=one) for one in (part, other)]
    assert stage.play().reported == [(5, after), (5, {"MIG-2": "it does not exist any more"})]


def test_the_view_can_request_a_refresh():
    """Other devices that are served for another reason have to be judged at once."""
    stage = Stage([XID], (), ())
    see_health = stage.see_health

    def serve_replicas(unhealthy: Mapping[str, str]) -> None:
        see_health(unhealthy)
        if len(stage.reported) == 1:
            stage.watch.report()
            assert len(stage.reported) == 1
            stage.served = [device(A + "::0", 0, A, replica=0)]
            stage.watch.report()

    stage.see_health = serve_replicas  # type: ignore[method-assign]
    stage.play()
    assert stage.reported[1:] == [(0.8, {A + "::0": REASON})]


def test_rules_and_times_can_be_set():
    """Rules, quiet time and rhythms are settings."""
    times = HealthTimes(wait_s=0.5, poll_s=1, reread_s=3, settle_s=0.1, gap_s=0.1)
    state = HealthState(rules=read_xid_rules("94"))
    stage = Stage([XID], *[()] * 9, state=state, times=times).play()
    assert stage.reported == []
    assert stage.at("faults") == [0, 1, 2, 3, 4, 5]
    assert stage.at("read") == [3]


# --- errors ---


@pytest.mark.parametrize(
    "error", [BROKEN, ReadingError("no"), InvalidTopology("no"), OSError("no")]
)
def test_a_wait_that_fails_is_replaced_by_polls(error):
    """Without events GPUs are still watched; what may have been missed is looked for."""
    stage = Stage(error, error, error, error, error, {"ill": {B: "lost"}}, ()).play()
    assert stage.gaps("wait")[:5] == [1, 2, 4, 5, 5]
    assert stage.at("faults") == [0, 1, 3, 7, 12, 17]
    assert stage.lines[0] == ("wait", str(error), 1)
    assert stage.lines[4:] == [("wait", str(error), 5), ("wait", "works")]


def test_failures_count_in_a_row_only():
    """A hiccup an hour must not lengthen the delays."""
    stage = Stage(BROKEN, (), BROKEN, ()).play()
    assert stage.gaps("wait") == [1, 0.8, 1]


def test_a_machine_that_cannot_be_polled_is_unhealthy_until_it_can():
    """One failed poll may be a hiccup; a driver that is gone has no GPU to give."""
    stage = Stage(*QUIET, {"ill": {}}, *QUIET)
    stage.ill = BROKEN
    stage.play()
    reason = "the machine's GPUs do not respond"
    assert stage.reported == [(3, {A: reason, B: reason}), (12, {})]
    assert stage.at("faults")[:5] == [0, 1, 3, 7, 12]
    assert [line for line in stage.lines if line[0] == "faults"][-1] == ("faults", "works")


def test_marks_outlive_a_failed_poll():
    """A GPU that is known to be bad does not become well because no poll succeeds."""
    stage = Stage([XID], ())
    stage.ill = BROKEN
    stage.play()
    assert stage.reported == [(0.8, {A: REASON})]


def test_a_reading_that_fails_is_tried_again():
    """What was read before stays published; the next try comes in seconds, not in minutes."""
    stage = Stage([XID], *QUIET, (), {"reading": OTHER}, *QUIET)
    stage.reading = BROKEN
    stage.play()
    assert stage.at("read") == [5, 6, 8, 12]
    assert [what for _, what in stage.reported] == [{A: REASON}, OTHER]
    assert stage.lines[1:] == [*(("read", "no", n) for n in (1, 2, 3)), ("read", "works")]


def test_a_fault_of_our_own_ends_the_watch():
    """An error that no machine raises must not be logged away for ever."""
    stage = Stage(ValueError("bug"))
    with pytest.raises(ExceptionGroup) as caught:
        run_at_once(stage.watch.run())
    assert [str(error) for error in caught.value.exceptions] == ["bug"]


# --- threads ---


class Hanging:
    """A reader whose `wait` hangs until it is let go, then plays on."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.go = threading.Event()
        self.returned = threading.Event()
        self.thread: threading.Thread | None = None

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        self.thread = threading.current_thread()
        self.called.set()
        self.go.wait(10 * timeout_s)
        self.returned.set()
        return ()

    def faults(self) -> dict[str, str]:
        return {}

    def read(self) -> MachineReading:
        return READING

    def condition(self) -> ReaderCondition:
        return ReaderCondition()

    def close(self) -> None:
        self.go.set()


def hanging_watch(times: HealthTimes) -> tuple[Hanging, Stage, HealthWatch]:
    """A watch of a reader that hangs."""
    reader, stage = Hanging(), Stage()
    return (
        reader,
        stage,
        HealthWatch(reader, stage, log=stage, reading=READING, state=HEALTHY, times=times),
    )


def test_calls_do_not_block_the_loop():
    """The kubelet's calls are answered on the same loop."""
    reader, _, watch = hanging_watch(HealthTimes())

    async def go() -> threading.Thread | None:
        task = asyncio.ensure_future(watch.run())
        await asyncio.to_thread(reader.called.wait, 10)
        reader.go.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return reader.thread

    assert asyncio.run(go()) is not threading.main_thread()


@pytest.mark.parametrize("what", ["faults", "read"])
def test_a_call_that_hangs_makes_all_unhealthy_until_it_returns(what):
    """A reader whose own deadlines fail cannot say which GPU is well."""
    times = HealthTimes(deadline_s=10, reread_s=2, poll_s=3)
    stage = Stage(*[()] * 100, times=times)
    in_turn, has_hung = stage.in_turn, list[str]()

    async def hang(call: Callable[..., T], *args: float) -> T:
        if call == getattr(stage, what) and stage.at(what)[1:] and not has_hung:
            has_hung.append(what)
            await asyncio.sleep(30)
        return await in_turn(call, *args)

    stage.watch = HealthWatch(
        stage, stage, log=stage, reading=READING, state=HEALTHY, times=times, in_thread=hang
    )
    stage.play()
    reason = f"the driver does not answer ({what}, 10 s)"
    (silent_s, silent), (back_s, back) = stage.reported
    assert (silent, back) == ({A: reason, B: reason}, {})
    assert 20 <= back_s - silent_s <= 21
    assert stage.lines == [(what, reason, 1), (what, "works")]


def test_a_wait_that_hangs_makes_nothing_unhealthy():
    """Polls find what events would have shown, and go on."""
    stage = Stage(*[()] * 3)
    in_turn = stage.in_turn

    async def hang(call: Callable[..., T], *args: float) -> T:
        if call == stage.wait and len(stage.script) == 1:
            stage.ill = {B: "lost"}
            await asyncio.sleep(300)
        return await in_turn(call, *args)

    stage.watch = HealthWatch(
        stage, stage, log=stage, reading=READING, state=HEALTHY, in_thread=hang
    )
    due: list[str] = []

    def note(what: str, reason: str, *, n_failures: int) -> None:
        assert (what, n_failures) == ("wait", 1)
        due.append(reason)

    stage.reader_failed = note  # type: ignore[method-assign]
    stage.play()
    assert stage.reported == [(5, {B: "lost"})]
    assert due == ["the driver does not answer (wait, 150 s)"]
    assert len(stage.at("faults")) > 60


def test_events_are_seen_while_a_poll_hangs():
    """A GPU that does not answer must not hide the XID of another."""
    stage = Stage((), [XID], *[()] * 20)
    in_turn = stage.in_turn

    async def hang(call: Callable[..., T], *args: float) -> T:
        if call == stage.faults:
            await asyncio.sleep(12)
        return await in_turn(call, *args)

    stage.watch = HealthWatch(
        stage, stage, log=stage, reading=READING, state=HEALTHY, in_thread=hang
    )
    assert stage.play().reported == [(1.6, {A: REASON})]


# --- a restart of the process ---


def test_a_call_that_never_returns_makes_a_restart_due():
    """Minutes later, since a reset of the GPU may end the call."""
    stage = Stage(*[()] * 1000)
    in_turn = stage.in_turn
    due: list[tuple[float, str]] = []

    async def hang(call: Callable[..., T], *args: float) -> T:
        if call == stage.faults:
            for _ in range(35):
                await asyncio.sleep(10)
                now_s = asyncio.get_running_loop().time()
                due.append((stage.note_time(), stage.watch.restart_due(now_s)))
        return await in_turn(call, *args)

    stage.watch = HealthWatch(
        stage, stage, log=stage, reading=READING, state=HEALTHY, in_thread=hang
    )
    stage.play()
    assert 300 <= next(at_s for at_s, reason in due if reason) <= 310
    assert {reason for at_s, reason in due if 310 <= at_s <= 350} == {
        "the driver does not answer (faults)"
    }


def test_a_reader_that_needs_a_restart_for_minutes_makes_it_due():
    """And not for a reason that went away meanwhile."""
    bad = ReaderCondition(restart_reason="the driver does not answer (GPU-1)")
    due: list[tuple[float, str]] = []
    stage = Stage({"health": bad}, *[()] * 100, {"health": ReaderCondition()}, (), {"health": bad})
    stage.script += [()] * 430
    faults = stage.faults

    def note() -> Mapping[str, str]:
        now_s = asyncio.get_running_loop().time()
        due.append((stage.note_time(), stage.watch.restart_due(now_s)))
        return faults()

    stage.faults = note  # type: ignore[method-assign]
    stage.play()
    assert [what for _, what in stage.reported] == [bad, ReaderCondition(), bad]
    again_s = stage.reported[-1][0]
    first_s = next(at_s for at_s, reason in due if reason)
    assert 300 <= first_s - again_s <= 305
    assert {reason for _, reason in due} == {"", bad.restart_reason}


def test_a_watch_that_needs_a_new_process_ends():
    """A minute after a restart was due, where no liveness probe has made it."""
    stage = Stage({"health": ReaderCondition(restart_reason="NVML: Unknown Error")}, *[()] * 1000)
    with pytest.raises(ExceptionGroup) as caught:
        run_at_once(stage.watch.run())
    (error,) = caught.value.exceptions
    assert isinstance(error, ReadingError)
    assert str(error).startswith("NVML: Unknown Error: expected a restart")
    assert 360 <= stage.at("faults")[-1] <= 366


@pytest.mark.parametrize("error", [None, BROKEN])
def test_cancelling_waits_for_the_call_under_way(error, caplog):
    """The reader is closed afterwards, which must not happen under a call.

    The result of that call is of no use any more, and no line in the log.
    """
    reader, _, watch = hanging_watch(HealthTimes(give_up_s=60.0))
    ended: list[float] = []
    wait = reader.wait

    def slow(timeout_s: float) -> tuple[GpuEvent, ...]:
        wait(timeout_s)
        ended.append(timeout_s)
        return answer(error or ())

    reader.wait = slow  # type: ignore[method-assign]

    async def go() -> int:
        task = asyncio.ensure_future(watch.run())
        await asyncio.to_thread(reader.called.wait, 10)
        task.cancel()
        asyncio.get_running_loop().call_soon(reader.go.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(ended)

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(go()) == 1
        gc.collect()
    assert caplog.records == []


def test_cancelling_gives_a_hanging_call_up():
    """A driver that hangs must not keep the program from ending in time."""
    reader, _, watch = hanging_watch(HealthTimes(give_up_s=0.0))

    async def go() -> bool:
        task = asyncio.ensure_future(watch.run())
        await asyncio.to_thread(reader.called.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        was_hanging = not reader.returned.is_set()
        reader.go.set()
        return was_hanging

    assert asyncio.run(go())
