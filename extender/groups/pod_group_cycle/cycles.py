"""What filter answered the members of one PodGroup: the runs of its scheduling cycles.

kube-scheduler calls filter for each member in one order, by priority and first attempt, counts each
as placed, and undoes all of it at the end (1.36, schedule_one_podgroup.go). With a topology
constraint it does so for each placement, and chooses one of them. Only if the group passes are its
members bound, each in a goroutine of its own. Nothing of this is said to an extender. Rules:

1. A member that is called again begins a new run: the same members from the first one on. Not so
   one that was called just before and refused: kube-scheduler tried its nominated node alone.
2. A member that was answered a node and is left out of the next run, though one behind it is
   called, is not in the queue: the cycle has passed, and whom it answered is being bound. Each
   counts until its bind call, the next filter call for it, or a time after the last one. What the
   others were answered before is void.
3. A bind call shows the run that was chosen: the newest in which the member was answered that node.
   It also ends the cycle, where that is the last one.

It knows no device and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from extender.protocol import PodRequest

__all__ = ["Cycles", "Run"]

MAX_RUNS = 1024
"""Placements remembered of one group; the oldest are dropped."""


@dataclass(slots=True, eq=False)
class Run:
    """The members called for, in order, with the node that each was answered; None: refused."""

    nodes: dict[str, str | None] = field(default_factory=dict[str, "str | None"])


@dataclass(slots=True, eq=False)
class Cycles:
    """The runs of one group: those of the last cycle, and what is left of earlier ones.

    `requests` are those of the members that were answered a node. `called_s` is when filter was
    called for one of them last. `failed` are GPU models on which members found no node in earlier
    runs, until a run is bound.
    """

    called_s: float = 0.0
    failed: set[str] = field(default_factory=set[str])
    requests: dict[str, PodRequest] = field(default_factory=dict[str, "PodRequest"])
    _now: list[Run] = field(default_factory=list[Run])
    _before: list[Run] = field(default_factory=list[Run])
    _last: Run | None = None
    _passed: dict[str, None] = field(default_factory=dict[str, None])
    _is_over: bool = False

    def call(self, uid: str, now_s: float) -> None:
        """Filter is called for a member."""
        self.called_s = now_s
        run = self._now[-1] if self._now else None
        is_new = (
            run is None or self._is_over or (uid in run.nodes and not _is_refused_last(run, uid))
        )
        if is_new:
            self._begin()
        self._now[-1].nodes[uid] = None
        self._passed.pop(uid, None)
        if self._last is not None and self._has_skipped(self._last, uid):
            self._pass(self._last)
        for one in self._before:
            one.nodes.pop(uid, None)

    def answered(self, request: PodRequest, node: str) -> None:
        """The member was answered this node alone."""
        self._now[-1].nodes[request.uid] = node
        self.requests[request.uid] = request

    def counted(self, uid: str) -> Iterator[tuple[str, PodRequest]]:
        """The nodes of the others that may be counted as placed, with these members.

        One that is being bound counts on every node that it was answered, until its bind call.
        """
        found: dict[tuple[str, str], None] = {}
        for other in self._passed:
            for run in (*self._before, *self._now):
                node = run.nodes.get(other)
                if node is not None:
                    found[node, other] = None
        for other, node in self._now[-1].nodes.items():
            if node is not None and other != uid:
                found[node, other] = None
        for node, other in found:
            yield node, self.requests[other]

    def chosen(self, uid: str, node: str) -> Mapping[str, str]:
        """The nodes of all members in the run that is being bound; empty: there is none."""
        for run in (*reversed(self._now), *reversed(self._before)):
            if run.nodes.get(uid) == node:
                self._is_over = self._is_over or run in self._now
                self.failed.clear()
                return {other: one for other, one in run.nodes.items() if one is not None}
        return {}

    def drop(self, uid: str) -> None:
        """The member is bound, or is gone, or its devices are kept: nothing counts any more."""
        for run in (*self._now, *self._before):
            if uid in run.nodes:
                run.nodes[uid] = None
        self._passed.pop(uid, None)
        self.requests.pop(uid, None)

    def _begin(self) -> None:
        """A new run, of this cycle or of a later one."""
        last = self._now[-1] if self._now else None
        if self._is_over:
            self._before, self._now, self._is_over = [*self._before, *self._now], [], False
        self._last = last
        self._before = [one for one in self._before if any(one.nodes.values())]
        kept = [one for one in self._now if any(one.nodes.values())]
        self._now = [one for one in kept if one is last or not _is_same(one, last)]
        self._now.append(Run())
        del self._now[:-MAX_RUNS], self._before[:-MAX_RUNS]

    def _has_skipped(self, last: Run, uid: str) -> bool:
        """Whether a member is missing in this run that stood in front of this one."""
        run = self._now[-1]
        if uid not in last.nodes:
            return False
        in_front = takewhile(lambda one: one != uid, last.nodes)
        return any(last.nodes[one] is not None and one not in run.nodes for one in in_front)

    def _pass(self, last: Run) -> None:
        """The last run is that of a cycle that passed: its members are being bound."""
        run, self._last = self._now[-1], None
        for other, node in last.nodes.items():
            if node is not None and other not in run.nodes:
                self._passed[other] = None
        self._before, self._now = [*self._before, *self._now[:-1]], [run]
        for one in self._before:
            for uid in run.nodes:
                one.nodes.pop(uid, None)


def _is_refused_last(run: Run, uid: str) -> bool:
    return next(reversed(run.nodes)) == uid and run.nodes[uid] is None


def _is_same(run: Run, other: Run | None) -> bool:
    return other is not None and run.nodes == other.nodes
