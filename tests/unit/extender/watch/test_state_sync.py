"""The feed: what the watches deliver reaches the state, and the state is as fresh as they are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from extender.clocks import SteadyClock
from extender.engine.events import (
    FreshnessSet,
    NominationDeleted,
    NominationsListed,
    NominationUpdated,
    PodDeleted,
    PodsListed,
    PodUpdated,
    TimePassed,
)
from extender.state import NodeProblem, Probe
from extender.watch import InformerSet, PodSink, WatchLog, state_sync
from extender.watch.state_sync import TICK_S
from extender.watch.watch_log import MAX_KNOWN_FAULTS
from kube.objects import ObjectKey, PodFacts
from kube.watch import Fault
from kube.watch.reflector import Counts
from tests.unit.extender.shells import DOWN, FakeTime, Log, pod_object, run_until, until

if TYPE_CHECKING:
    from extender.engine.events import StateEvent
    from extender.state import Effect

FACTS = PodFacts("u1", "ns", "p", "7", None, None, may_request=True)
KEY = ObjectKey("ns", "p", "u1")
PROBLEM = NodeProblem("n1", "broken")
WALL_S = 1_000_000.0


@dataclass
class Watch:
    """A watch with prepared answers."""

    name: str
    is_synced: bool = True
    observed_at_s: float | None = 90.0
    counts: Counts = field(default_factory=Counts)
    fault: Exception | None = None

    async def run(self) -> None:
        if self.fault is not None:
            raise self.fault
        await asyncio.Event().wait()


class Prober:
    """Takes requests and serves none."""

    def __init__(self) -> None:
        self.requests: list[Probe] = []
        self.open: frozenset[str] = frozenset()
        self.n_refused = 0

    def request(self, probe: Probe) -> None:
        self.requests.append(probe)

    async def run(self) -> None:
        await asyncio.Event().wait()


class Stage:
    """A feed, and what it calls."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.effects_seen: list[Effect] = []
        self.freshness: list[tuple[bool, float]] = []
        self.expired: list[float] = []
        self.n_changes = 0
        self.time = FakeTime()
        self.log = Log()
        self.prober = Prober()
        clock = SteadyClock(wall=lambda: WALL_S, monotonic=self.time)
        self.feed = InformerSet(
            handle=self._handle,
            prober=self.prober,  # type: ignore[arg-type]  # of it only this is used
            take_effects=self._take,
            on_effect=self.effects_seen.append,
            on_change=self._change,
            is_located=lambda uid: uid == "located",
            clock=clock,
            log=self.log,
            sleep=self.time.sleep,
        )

    def _handle(self, event: StateEvent) -> None:
        """The gateway's."""
        match event:
            case FreshnessSet(is_synced, float(observed_at_s)):
                self.freshness.append((is_synced, observed_at_s - WALL_S))
            case TimePassed(at_s):
                self.expired.append(at_s - WALL_S)
            case _:
                pytest.fail(f"{event} is not the feed's")

    def _take(self) -> list[Effect]:
        taken, self.effects = self.effects, []
        return taken

    def _change(self) -> None:
        self.n_changes += 1

    def watch(self, *watches: Watch) -> None:
        """Take these watches without running them."""
        self.feed.watches = watches


def test_the_state_is_as_fresh_as_its_oldest_watch():
    """One silent watch makes the whole state old."""
    stage = Stage()
    stage.watch(Watch("a", observed_at_s=95.0), Watch("b", observed_at_s=80.0))
    stage.feed.tick()
    assert stage.freshness == [(True, -20.0)]
    assert stage.expired == [0.0]
    assert stage.log.events == ["ready"]


@pytest.mark.parametrize(
    "late", [Watch("b", is_synced=False), Watch("b", observed_at_s=None)], ids=["list", "word"]
)
def test_the_state_is_not_synced_before_every_watch_is(late):
    """A pod that was not listed yet may hold the devices that look free."""
    stage = Stage()
    stage.watch(Watch("a"), late)
    stage.feed.tick()
    assert not stage.freshness[-1][0]
    assert not stage.feed.synced.is_set()
    late.is_synced, late.observed_at_s = True, 99.0
    stage.feed.tick()
    assert stage.freshness[-1][0]


def test_the_state_is_not_synced_before_the_first_pods_are_read():
    """Nodes with pods that cannot be located are placed by count."""
    stage = Stage()
    stage.watch(Watch("a"))
    stage.effects = [Probe("ns", "p", "u1")]
    stage.prober.open = frozenset({"u1"})
    stage.feed.tick()
    assert stage.prober.requests == [Probe("ns", "p", "u1")]
    assert not stage.feed.synced.is_set()
    stage.prober.open = frozenset()
    stage.feed.tick()
    assert stage.feed.synced.is_set()


def test_the_first_pods_are_awaited_however_long_it_takes():
    """Their nodes are unknown, and what they hold there would be allocated again."""
    stage = Stage()
    stage.watch(Watch("a"))
    stage.prober.open = frozenset({"u1", "u2"})
    stage.feed.tick()
    stage.time.now_s += 3600.0
    stage.feed.tick()
    assert not stage.freshness[-1][0]
    assert stage.feed.missing is not None
    assert stage.feed.missing.startswith("2 pods that may have GPUs")
    stage.prober.open = frozenset({"u3"})
    stage.feed.tick()
    assert stage.freshness[-1][0]
    assert stage.feed.missing is None
    assert stage.log.lines == [{"event": "ready", "n_refused": 0}]


def test_what_was_not_listed_is_named():
    """An operator who looks for the reason finds that watch's faults."""
    stage = Stage()
    assert stage.feed.missing == "not listed yet: anything"
    stage.watch(Watch("a"), Watch("b", is_synced=False))
    assert stage.feed.missing == "not listed yet: b"
    stage.watch(Watch("a"))
    assert stage.feed.missing == "not synced yet"


def test_pods_that_only_a_later_list_shows_are_awaited(monkeypatch):
    """They came while no event arrived; those whose node is known delay nothing."""
    monkeypatch.setattr(state_sync, "BATCH_S", 0.0)

    async def go() -> None:
        stage.feed.tick()
        stage.prober.open = frozenset({"located"})
        stage.feed.listed()
        assert stage.freshness[-1][0]
        stage.prober.open = frozenset({"located", "u1"})
        stage.feed.listed()
        assert not stage.freshness[-1][0]
        stage.prober.open = frozenset({"located", "u2"})
        stage.feed.changed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stage.freshness[-1][0]

    stage = Stage()
    stage.watch(Watch("a"))
    asyncio.run(go())


def test_later_probes_do_not_make_the_state_incomplete_again():
    """Else every foreign pod would stop the placing."""
    stage = Stage()
    stage.watch(Watch("a"))
    stage.feed.tick()
    stage.prober.open = frozenset({"u1", "u2"})
    stage.feed.tick()
    assert stage.freshness[-1][0]


def test_a_batch_of_changes_is_acted_on_once(monkeypatch):
    """Settling the state costs the same for one change and for a thousand."""
    monkeypatch.setattr(state_sync, "BATCH_S", 0.0)

    async def go() -> None:
        for _ in range(1000):
            stage.feed.changed()
        assert stage.n_changes == 0
        await until(lambda: stage.n_changes)
        assert stage.n_changes == 1
        stage.feed.changed()
        await until(lambda: stage.n_changes == 2)

    stage = Stage()
    stage.effects = [PROBLEM, Probe("ns", "p", "u1")]
    asyncio.run(go())
    assert stage.n_changes == 2
    assert (stage.effects_seen, stage.prober.requests) == ([PROBLEM], [Probe("ns", "p", "u1")])


def test_the_feed_ticks_while_it_runs():
    """Freshness and deadlines move on in a quiet cluster."""
    stage = Stage()
    asyncio.run(run_until(stage.feed.run([Watch("a")]), lambda: len(stage.expired) >= 3))
    assert stage.expired[:3] == [0.0, TICK_S, 2 * TICK_S]
    assert [watch.name for watch in stage.feed.watches] == ["a"]


@pytest.mark.parametrize(
    "pending",
    [Watch("b", is_synced=False, observed_at_s=None), Watch("b", observed_at_s=1.0)],
    ids=["never listed", "silent"],
)
def test_the_state_does_not_wait_for_what_runs_beside_it(pending):
    """Pods without a group need no pending pods, be it that they cannot be listed for hours."""
    stage = Stage()
    asyncio.run(
        run_until(stage.feed.run([Watch("a")], [pending]), lambda: len(stage.freshness) >= 2)
    )
    assert stage.freshness[0] == (True, -10.0)
    assert stage.feed.missing is None
    assert [watch.name for watch in stage.feed.beside] == ["b"]


def test_a_fault_of_our_own_ends_the_feed():
    """State that is no longer updated is worse than a restart."""
    stage = Stage()
    broken = Watch("a", fault=RuntimeError("bug"))
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run_until(stage.feed.run([broken]), lambda: False))
    assert caught.group_contains(RuntimeError, match="bug")


NOMINATED = pod_object()


@pytest.mark.parametrize(
    ("kinds", "one", "forgets_unread", "expected"),
    [
        pytest.param(
            (PodsListed, PodUpdated, PodDeleted),
            FACTS,
            False,
            [PodsListed((FACTS,)), PodUpdated(FACTS), PodDeleted("u1")],
            id="assigned pods: what was known of an unreadable one stays",
        ),
        pytest.param(
            (NominationsListed, NominationUpdated, NominationDeleted),
            NOMINATED,
            True,
            [
                NominationsListed((NOMINATED,)),
                NominationUpdated(NOMINATED),
                NominationDeleted("u1"),
                NominationDeleted("u1"),
            ],
            id="nominated pods: an unreadable one claims nothing",
        ),
    ],
)
def test_pods_reach_the_gateway(kinds, one, forgets_unread, expected):
    """Each in the order in which it came, and the feed is called after each event."""
    events: list[StateEvent] = []
    calls: list[str] = []
    log = Log()
    sink = PodSink(
        "pods",
        kinds,
        events.append,
        changed=lambda: calls.append("changed"),
        listed=lambda: calls.append("listed"),
        log=WatchLog(log),
        forgets_unread=forgets_unread,
    )
    asyncio.run(sink.replace([one]))
    sink.seen(one)
    sink.gone(KEY)
    sink.unread(KEY, "odd")
    sink.failed(Fault("pods", DOWN, 0.1, will_list=False))
    assert events == expected
    assert calls == ["listed"] + ["changed"] * (len(expected) - 1)
    assert log.events == ["watch_listed", "object_unreadable", "watch_error"]


def test_a_broken_object_is_logged_once_per_fault():
    """It stays broken over thousands of events; what is remembered of that is bounded."""
    log = Log()
    watch_log = WatchLog(log)
    for _ in range(3):
        watch_log.unread("nodes", ObjectKey("", "n1", "u"), "odd")
        watch_log.unread("nodes", ObjectKey("", "n1", "u"), "odder")
    assert [(line["object"], line["detail"]) for line in log.lines] == [
        ("n1", "odd"),
        ("n1", "odder"),
    ]
    for i in range(MAX_KNOWN_FAULTS):
        watch_log.unread("pods", ObjectKey("ns", f"p{i}", "u"), "odd")
    assert log.lines[-1]["object"] == f"ns/p{MAX_KNOWN_FAULTS - 1}"
    watch_log.unread("nodes", ObjectKey("", "n1", "u"), "odd")
    assert log.lines[-1]["object"] == "n1"


def test_the_engines_time_does_not_jump():
    """Whatever the machine's clock is set to."""
    wall, monotonic = iter([1000.0, 5000.0]), FakeTime(10.0)
    clock = SteadyClock(wall=lambda: next(wall), monotonic=monotonic)
    assert clock() == 1000.0
    monotonic.now_s = 12.0
    assert clock() == 1002.0
    assert clock.at(11.0) == 1001.0
