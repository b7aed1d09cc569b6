"""Pending pods: taken in turns, from one watch or several, and which of them are members."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from extender.engine.events import NodeDeleted, PendingDeleted, PendingListed, PendingUpdated
from extender.watch import PendingMembers, PendingWatch, WatchLog
from kube.objects import ObjectKey, PodObject
from kube.watch import Fault
from tests.unit.extender.shells import DOWN, Log, pod_object
from tests.virtual_time import run_at_once

if TYPE_CHECKING:
    from extender.engine.events import StateEvent

NOW_S = 7.0


def pending(uid: str, **annotations: str) -> PodObject:
    """A pod without a node."""
    return replace(pod_object(), uid=uid, node_name=None, annotations=annotations)


def key(uid: str) -> ObjectKey:
    """The key of a pod."""
    return ObjectKey("ns", uid, uid)


class Taken:
    """What is taken, and how often changes are acted on."""

    def __init__(self, *, busy_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.events: list[StateEvent] = []
        self.n_changes = 0
        self.log = Log()
        self._busy_s = busy_s
        self.gone: list[str] = []
        self.pods = PendingWatch(
            self._take, self._change, lambda: NOW_S, self.gone.append, WatchLog(self.log)
        )

    def _take(self, event: StateEvent) -> None:
        self.now_s += self._busy_s
        self.events.append(event)

    def _change(self) -> None:
        self.n_changes += 1


def test_what_a_watch_shows_becomes_events():
    """Each pod on its own; the list is complete when all of it was taken."""
    taken = Taken()
    sink = taken.pods.sink("pending_pods")
    a, b, c = (pending(uid) for uid in "abc")
    asyncio.run(sink.replace([a, b]))
    listed = PendingListed(("a", "b"), NOW_S)
    assert taken.events == [PendingUpdated(a, NOW_S), PendingUpdated(b, NOW_S), listed]
    taken.events.clear()
    sink.seen(c)
    sink.gone(key("a"))
    assert taken.events == [PendingUpdated(c, NOW_S), PendingDeleted("a")]
    assert taken.gone == ["a"]
    assert taken.n_changes == 3


def test_a_list_shows_who_is_gone():
    """Deletions may be missed between two watches."""
    taken = Taken()
    sink = taken.pods.sink("pending_pods")
    a, b = pending("a"), pending("b")
    asyncio.run(sink.replace([a]))
    taken.events.clear()
    asyncio.run(sink.replace([b]))
    assert taken.events == [
        PendingDeleted("a"),
        PendingUpdated(b, NOW_S),
        PendingListed(("b",), NOW_S),
    ]
    assert taken.gone == ["a"]


def test_the_pods_are_listed_when_every_watch_was():
    """A group may have members of any of them; a later list leaves those of the others alone."""
    taken = Taken()
    first, second = taken.pods.sink("pending_pods/a"), taken.pods.sink("pending_pods/b")
    asyncio.run(first.replace([pending("a")]))
    second.seen(pending("b"))
    assert not [one for one in taken.events if isinstance(one, PendingListed)]
    asyncio.run(second.replace([pending("b")]))
    assert taken.events[-1] == PendingListed(("a", "b"), NOW_S)
    asyncio.run(first.replace([]))
    assert taken.events[-2:] == [PendingDeleted("a"), PendingListed(("b",), NOW_S)]


def test_a_long_list_is_taken_in_turns(monkeypatch):
    """40,000 pods take seconds: filter and bind are answered meanwhile."""
    taken = Taken(busy_s=0.001)
    sink = taken.pods.sink("pending_pods")
    n_seen: list[int] = []
    monkeypatch.setattr("time.perf_counter", lambda: taken.now_s)
    replaced = sink.replace([pending(str(i)) for i in range(5)])
    run_at_once(replaced, at_turn=lambda: n_seen.append(len(taken.events)))
    assert list(dict.fromkeys(n_seen)) == [0, 2, 4, 6]


def test_a_pod_that_cannot_be_read_is_no_member():
    """It is logged once, and what was known of it does not stay for ever."""
    taken = Taken()
    sink = taken.pods.sink("pending_pods")
    sink.seen(pending("a"))
    sink.unread(key("a"), "spec is a list")
    assert taken.events[-1] == PendingDeleted("a")
    assert (sink.uids, taken.gone) == ({}, [])
    sink.failed(Fault("pending_pods", DOWN, 0.1, will_list=True))
    assert taken.log.events == ["object_unreadable", "watch_error"]


def members() -> PendingMembers:
    """Pods with a group are."""
    return PendingMembers(lambda pod: "group" in pod.annotations)


def test_only_members_decide():
    """The decision log need not hold the pods that wait for nothing but room."""
    known = members()
    a, b = pending("a", group="g"), pending("b")
    seen = PendingUpdated(a, NOW_S)
    assert known.pick(seen) is seen
    assert known.pick(PendingUpdated(b, NOW_S)) is None
    assert known.pick(PendingDeleted("b")) is None
    listed = known.pick(PendingListed(("a", "b"), NOW_S))
    assert listed == PendingListed(("a",), NOW_S)
    assert known.pick(PendingDeleted("a")) == PendingDeleted("a")
    assert known.pick(PendingDeleted("a")) is None


def test_a_pod_that_is_no_member_any_more_is_gone():
    """Its annotation may be removed."""
    known = members()
    known.pick(PendingUpdated(pending("a", group="g"), NOW_S))
    assert known.pick(PendingUpdated(pending("a"), NOW_S)) == PendingDeleted("a")


def test_other_events_pass():
    """They are not its business."""
    event = NodeDeleted("n")
    assert members().pick(event) is event
