"""Pods without a node, from one watch for each scheduler, as events that are taken in turns.

A list may have tens of thousands of them: it is taken pod by pod with pauses in which the event
loop serves others, and what it does not show any more is gone. Of all pending pods only members of
groups decide anything; `PendingMembers` picks their events.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extender.engine.events import PendingDeleted, PendingListed, PendingUpdated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from extender.engine.events import StateEvent
    from extender.watch.watch_log import WatchLog
    from kube.objects import ObjectKey, PodObject
    from kube.watch import Fault

__all__ = ["PendingMembers", "PendingSink", "PendingWatch"]

TURN_S = 0.002
"""Longest turn of the event loop on a list; reading one pod takes some 0.1 ms."""
PAUSE_S = 0.001
"""Between two turns: a scheduler's call needs several turns of the loop."""


@dataclass(eq=False)
class PendingWatch:
    """What the watches of pending pods show together; `sink` makes the sink of each.

    `take` gets the events: `PendingListed` once every watch was listed, and after each list from
    then on. `changed` is called after them. `gone` gets the uid of each pod that has a node or is
    no more, but not of one that cannot be read any more: it waits still.
    """

    take: Callable[[StateEvent], None]
    changed: Callable[[], None]
    clock: Callable[[], float]
    gone: Callable[[str], None]
    log: WatchLog
    _sinks: list[PendingSink] = field(default_factory=list["PendingSink"])

    def sink(self, source: str) -> PendingSink:
        """The sink of one watch."""
        sink = PendingSink(source, self)
        self._sinks.append(sink)
        return sink

    def listed(self) -> None:
        """A watch was listed."""
        if all(one.is_listed for one in self._sinks):
            uids = tuple(uid for one in self._sinks for uid in one.uids)
            self.take(PendingListed(uids, self.clock()))
        self.changed()


class PendingSink:
    """A `kube.watch.reflector.Sink` of pods; `uids` are those that it has, in their order."""

    def __init__(self, source: str, pods: PendingWatch) -> None:
        self._source = source
        self._pods = pods
        self.uids: dict[str, None] = {}
        self.is_listed = False

    async def replace(self, objects: Sequence[PodObject]) -> None:
        """Take all pods."""
        pods = self._pods
        pods.log.listed(self._source, len(objects))
        listed = {one.uid for one in objects}
        for uid in [uid for uid in self.uids if uid not in listed]:
            self._lose(uid)
            pods.gone(uid)
        ends_s = time.perf_counter() + TURN_S
        for one in objects:
            self._see(one)
            if time.perf_counter() >= ends_s:
                await asyncio.sleep(PAUSE_S)
                ends_s = time.perf_counter() + TURN_S
        self.is_listed = True
        pods.listed()

    def seen(self, one: PodObject) -> None:
        """Take a pod that is new or has changed."""
        self._see(one)
        self._pods.changed()

    def gone(self, key: ObjectKey) -> None:
        """A pod has a node, or is gone."""
        self._lose(key.uid)
        self._pods.gone(key.uid)
        self._pods.changed()

    def unread(self, key: ObjectKey, reason: str) -> None:
        """A pod cannot be read: it is no member."""
        self._pods.log.unread(self._source, key, reason)
        self._lose(key.uid)
        self._pods.changed()

    def failed(self, fault: Fault) -> None:
        """The watch failed and will be tried again."""
        self._pods.log.failed(fault)

    def _see(self, one: PodObject) -> None:
        self.uids[one.uid] = None
        self._pods.take(PendingUpdated(one, self._pods.clock()))

    def _lose(self, uid: str) -> None:
        self.uids.pop(uid, None)
        self._pods.take(PendingDeleted(uid))


class PendingMembers:
    """Which pending pods are members of groups, by `is_member`."""

    def __init__(self, is_member: Callable[[PodObject], bool]) -> None:
        self._is_member = is_member
        self._uids: set[str] = set()

    def pick(self, event: StateEvent) -> StateEvent | None:
        """What an event of `PendingWatch` says of members; None where that is nothing."""
        match event:
            case PendingUpdated(pod, _) if self._is_member(pod):
                self._uids.add(pod.uid)
                return event
            case PendingUpdated(pod, _):
                return self._lose(pod.uid)
            case PendingDeleted(uid):
                return self._lose(uid)
            case PendingListed(uids, at_s):
                return PendingListed(tuple(uid for uid in uids if uid in self._uids), at_s)
            case _:
                return event

    def _lose(self, uid: str) -> PendingDeleted | None:
        if uid not in self._uids:
            return None
        self._uids.remove(uid)
        return PendingDeleted(uid)
