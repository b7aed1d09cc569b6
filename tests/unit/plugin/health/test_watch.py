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
from plugin.machine import Device, EventKind, GpuEvent
from plugin.nvidia.nvml.errors import NvmlError
from plugin.nvidia.xids import XidRules, read_xid_rules
from tests.unit.plugin.machine_values import device, simulated_machine, xid_event
from topology.errors import InvalidTopology

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """A reader that plays a script, the view, the log and the time of a watch.

    Each call of `wait` plays a step: events to return, an error to raise, or a dict of what becomes
    of the machine (`reading`, `ill`). A step lasts `wait_s`; else only what is slept takes time.
    """

    def __init__(self, *script: Any, **watch: Any) -> None:
        self.now_s = 1000.0
        self.script = list(script)
        self.reading: MachineReading | Exception = READING
        self.ill: Mapping[str, str] | Exception = {}
        self.calls: list[tuple[str, float]] = []
        self.told: list[tuple[float, Any]] = []
        self.lines: list[tuple[Any, ...]] = []
        self.served = [device(A, 0, A), device(B, 1, B)]
        self.news = asyncio.Event()
        times = {"clock": self.time, "sleep": self.sleep}
        given = {"reading": READING, "state": HEALTHY, **times, **watch}
        self.watch = HealthWatch(self, self, log=self, **given)

    def play(self) -> Stage:
        """Run the watch until the script is over."""
        with pytest.raises(EndError):
            asyncio.run(self.watch.run())
        return self

    # --- time ---

    def time(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.calls.append((f"sleep {seconds:g}", self.seconds))
        self.now_s += seconds

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return round(self.now_s - 1000, 3)

    def at(self, what: str) -> list[float]:
        """When a call was made."""
        return [seconds for name, seconds in self.calls if name == what]

    def gaps(self, what: str) -> list[float]:
        """Seconds between two calls."""
        return [after - before for before, after in pairwise(self.at(what))]

    # --- the reader ---

    def wait(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        if not self.script:
            raise EndError
        step = self.script.pop(0)
        self.calls.append(("wait", self.seconds))
        if isinstance(step, Exception):
            raise step
        self.now_s += timeout_s
        if isinstance(step, dict):
            for name, value in step.items():
                setattr(self, name, value)
            return ()
        return tuple(step)

    def faults(self) -> Mapping[str, str]:
        self.calls.append(("faults", self.seconds))
        return answer(self.ill)

    def read(self) -> MachineReading:
        self.calls.append(("read", self.seconds))
        return answer(self.reading)

    def close(self) -> None:
        raise AssertionError

    # --- the view and the log ---

    def devices(self) -> list[Device]:
        return self.served

    def see_health(self, unhealthy: Mapping[str, str]) -> None:
        self.told.append((self.seconds, dict(unhealthy)))
        self.news.set()

    def see_reading(self, reading: MachineReading) -> None:
        self.told.append((self.seconds, reading))
        self.news.set()

    async def nth(self, n: int) -> Any:
        """The n-th thing that the view is told, counted from 1."""
        while len(self.told) < n:
            self.news.clear()
            await self.news.wait()
        return self.told[n - 1][1]

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


def test_an_idle_machine_is_polled_and_nobody_is_told():
    """An idle node must cost next to nothing, and no write at all."""
    stage = Stage(*[()] * 400).play()
    assert stage.told == stage.lines == []
    assert stage.at("faults")[:4] == [0, 5.6, 11.2, 16.8]  # the first wait that ends after 5 s
    assert stage.at("read") == [300.8]
    n_wakes = sum(len(stage.at(what)) for what in ("wait", "faults", "read"))
    assert n_wakes / stage.seconds < 1.5


def test_an_event_is_told_at_once_and_looked_into():
    """The kubelet must not give the GPU to anybody else; the links may have changed with it."""
    stage = Stage([IGNORED], [XID], *QUIET).play()
    assert stage.told == [(1.6, {A: REASON})]
    assert stage.lines == [(IGNORED, False), (XID, True)]
    assert stage.at("faults") == [0, 1.6, 7.2]
    assert stage.at("read") == [5.6]


def test_what_does_not_count_causes_no_work():
    """A program that faults in a loop sends thousands of XID 31."""
    stage = Stage(*[[IGNORED] * 50] * 6, [GpuEvent(EventKind.ECC, A)]).play()
    assert stage.told == []
    assert stage.at("faults") == [0, 5.6]
    assert stage.at("read") == []


def test_many_events_are_read_after_once_in_a_while():
    """A storm of errors must not turn into a storm of readings: each is thousands of calls."""
    stage = Stage(*[[XID, XID]] * 25).play()
    assert min(stage.gaps("faults")) == pytest.approx(1.6)
    assert stage.gaps("read") == pytest.approx([5.6, 5.6])
    assert stage.told == [(0.8, {A: REASON})]


def test_lost_events_mean_look_at_everything():
    """What was missed may be anything, so GPUs and links are asked anew."""
    stage = Stage(*QUIET, [MISSED], *QUIET).play()
    assert stage.at("faults") == [0, 5.6, 7.2, 12.8]
    assert stage.at("read") == [8.8]
    assert stage.told == []


def test_a_gpu_recovers_without_a_restart():
    """NVIDIA's plugin would have to be restarted."""
    stage = Stage([XID], *[()] * 90).play()
    (marked_s, marked), (recovered_s, recovered) = stage.told
    assert (marked_s, marked, recovered) == (0.8, {A: REASON}, {})
    assert 60.8 <= recovered_s <= 60.8 + 5.6


def test_a_lost_gpu_is_found_by_polling_and_comes_back():
    """Some GPUs vanish without an event."""
    stage = Stage({"ill": {B: "lost"}}, *QUIET, {"ill": {}}, *QUIET).play()
    assert stage.told == [(5.6, {B: "lost"}), (11.2, {})]
    assert stage.at("read") == [7.2, 12.8]  # its links went down and came back


def test_a_gpu_that_was_lost_before_is_no_news():
    """The first reading said so already."""
    reading = replace(READING, gpus=(replace(READING.gpus[0], fault="x"), *READING.gpus[1:]))
    stage = Stage(*QUIET, reading=reading)
    stage.ill = {A: "lost"}
    stage.play()
    assert stage.told == [(0, {A: "lost"})]
    assert stage.at("read") == []


def test_a_new_reading_is_told_once():
    """Links or MIG instances changed: the topology is published anew, but not over and over."""
    stage = Stage([XID], {"reading": OTHER}, *QUIET, [XID], *QUIET).play()
    assert [what for _, what in stage.told] == [{A: REASON}, OTHER]
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
    assert stage.told[1:] == [(5.6, OTHER), (5.6, {"MIG-1": REASON})]


def test_the_view_may_ask_for_news():
    """Whoever serves other devices for reasons of his own wants them judged at once."""
    stage = Stage([XID]).play()
    stage.watch.report()
    assert len(stage.told) == 1
    stage.served = [device(A + "::0", 0, A, replica=0)]
    stage.watch.report()
    assert stage.told[1:] == [(0.8, {A + "::0": REASON})]


def test_book_and_times_can_be_set():
    """Rules, quiet time and rhythms are settings."""
    times = HealthTimes(wait_s=0.5, poll_s=1, reread_s=3, settle_s=0.1, gap_s=0.1)
    state = HealthState(rules=read_xid_rules("94"))
    stage = Stage([XID], *[()] * 9, state=state, times=times).play()
    assert stage.told == []
    assert stage.at("faults") == [0, 1, 2, 3, 4, 5]
    assert stage.at("read") == [3]


# --- errors ---


@pytest.mark.parametrize(
    "error", [BROKEN, ReadingError("no"), InvalidTopology("no"), OSError("no")]
)
def test_a_wait_that_fails_is_replaced_by_polls(error):
    """Without events GPUs are still watched; what may have been missed is looked for."""
    stage = Stage(error, error, error, error, error, {"ill": {B: "lost"}}, ()).play()
    sleeps = [name for name, _ in stage.calls if name.startswith("sleep")]
    assert sleeps == ["sleep 1", "sleep 2", "sleep 4", "sleep 5", "sleep 5"]
    assert stage.at("faults") == [0, 1, 3, 7, 12, 17, 22.6][: len(stage.at("faults"))]
    assert stage.lines[0] == ("wait", str(error), 1)
    assert stage.lines[4:] == [("wait", str(error), 5), ("wait", "works")]


def test_failures_count_in_a_row_only():
    """A hiccup an hour must not lengthen the delays."""
    stage = Stage(BROKEN, (), BROKEN).play()
    assert [name for name, _ in stage.calls if name.startswith("sleep")] == ["sleep 1", "sleep 1"]


def test_a_machine_that_cannot_be_polled_is_unhealthy_until_it_can():
    """One failed poll may be a hiccup; a driver that is gone has no GPU to give."""
    stage = Stage(*QUIET, {"ill": {}}, *QUIET)
    stage.ill = BROKEN
    stage.play()
    reason = "the machine's GPUs do not respond"
    (silent_s, silent), (back_s, back) = stage.told
    assert (silent_s, silent, back) == (4.0, {A: reason, B: reason}, {})
    assert stage.at("faults")[:3] == [0, 1.6, 4.0]
    assert back_s - silent_s <= 5.6
    assert [line for line in stage.lines if line[0] == "faults"][-1] == ("faults", "works")


def test_marks_outlive_a_failed_poll():
    """A GPU that is known to be bad does not become well because nobody can be asked."""
    stage = Stage([XID], ())
    stage.ill = BROKEN
    stage.play()
    assert stage.told == [(0.8, {A: REASON})]


def test_a_reading_that_fails_is_tried_again():
    """What was read before stays published; the next try comes in seconds, not in minutes."""
    stage = Stage([XID], *QUIET, (), {"reading": OTHER}, *QUIET)
    stage.reading = BROKEN
    stage.play()
    assert stage.at("read") == [5.6, 7.2, 9.6]
    assert [what for _, what in stage.told] == [{A: REASON}, OTHER]
    assert stage.lines[1:] == [("read", "no", 1), ("read", "no", 2), ("read", "works")]


def test_a_fault_of_our_own_ends_the_watch():
    """An error that no machine raises must not be logged away for ever."""
    stage = Stage(ValueError("bug"))
    with pytest.raises(ValueError, match="bug"):
        asyncio.run(stage.watch.run())


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


def test_a_call_that_hangs_makes_all_unhealthy_until_it_returns():
    """A driver that does not answer would not answer a container either."""
    reader, stage, watch = hanging_watch(
        HealthTimes(wait_s=5, deadline_s=0.01, settle_s=0, poll_s=60)
    )

    async def go() -> None:
        task = asyncio.ensure_future(watch.run())
        await stage.nth(1)
        reader.go.set()
        await stage.nth(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(go(), 10))
    reason = "the driver does not answer (wait, 0.01 s)"
    assert [told for _, told in stage.told[:2]] == [{A: reason, B: reason}, {}]
    assert stage.lines[:2] == [("wait", reason, 1), ("wait", "works")]


@pytest.mark.parametrize("error", [None, BROKEN])
def test_cancelling_waits_for_the_call_under_way(error, caplog):
    """Whoever closes the reader afterwards must not pull it away under a call.

    What that call came to is nobody's concern any more, and no line in the log.
    """
    reader, _, watch = hanging_watch(HealthTimes())
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
        asyncio.get_running_loop().call_later(0.02, reader.go.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(ended)

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(go()) == 1
        gc.collect()
    assert caplog.records == []


def test_cancelling_gives_a_hanging_call_up(monkeypatch):
    """A driver that hangs must not keep the program from ending in time."""
    monkeypatch.setattr("plugin.health.watch.GIVE_UP_S", 0.01)
    reader, _, watch = hanging_watch(HealthTimes())

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


def test_the_simulated_machine_is_watched(tmp_path):
    """Both ends together in real time: a fault in the file reaches the view, and goes again."""
    file = tmp_path / "faults.yaml"
    machine = simulated_machine("dgx-1-v100", node_name="n", faults=file)
    reading = machine.read()
    stage = Stage()
    stage.served = [device(gpu.uuid, gpu.index, gpu.uuid) for gpu in reading.gpus]
    times = HealthTimes(wait_s=0.02, poll_s=0.02, reread_s=60, settle_s=0, gap_s=0)
    watch = HealthWatch(machine, stage, log=stage, reading=reading, state=HEALTHY, times=times)
    uuid = reading.gpus[3].uuid

    async def go() -> None:
        task = asyncio.ensure_future(watch.run())
        file.write_text("{lost: [3]}", encoding="utf-8")
        assert await stage.nth(1) == {uuid: "lost (simulated)"}
        worse = await stage.nth(2)
        assert worse.gpus[3].fault == "lost (simulated)"
        file.unlink()
        assert await stage.nth(3) == {}
        assert await stage.nth(4) == reading
        file.write_text("{links_down: [{gpus: [0, 3]}]}", encoding="utf-8")
        assert not (await stage.nth(5)).topology.links[0][3].is_up
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(go(), 20))
    machine.close()
