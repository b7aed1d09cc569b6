"""The promises about groups, checked from the same revisions of etcd.

Imports nothing of Coterie. A group is *partly bound* from the revision that binds its first member
until one at which as many have been bound as its size says, less those that the API server refused
to bind: members that were deleted meanwhile before they had a node. Members count once bound,
whatever becomes of them; a member that was deleted before any was bound does not count, and what
took its place does. The group is *complete* when as many as its size were bound.

A group whose pods are all gone is over; pods of its name that come later are another group.

A pod was *evicted* where kube-scheduler says so in its status before it deletes it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.cluster.fleet.checker import Checker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cluster.fleet.checker import Change, PodState

__all__ = ["GroupChecker", "GroupState"]

_GROUP, _SIZE = "coterie.gpu/group", "coterie.gpu/group-size"
_EVICTION = ("DisruptionTarget", "PreemptionByScheduler")
"""Type and reason of the condition (Kubernetes 1.36, preemption/executor.go)."""


@dataclass(slots=True)
class GroupState:
    """One group; `refused` are members that were deleted without a node while it was partly bound.

    `present` are the uids of its pods that are there. `settled_s` is when it ceased to be partly
    bound, `complete_s` when the last member that it needs was bound.
    """

    name: str
    size: int
    present: set[str] = field(default_factory=set)
    bound: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    first_s: float | None = None
    settled_s: float | None = None
    complete_s: float | None = None

    @property
    def partial_s(self) -> float:
        """How long it was partly bound, or is."""
        if self.first_s is None:
            return 0.0
        until_s = time.monotonic() if self.settled_s is None else self.settled_s
        return until_s - self.first_s

    def bind(self, uid: str, node: str, at_s: float) -> None:
        """A member has a node."""
        self.bound[uid] = node
        if self.first_s is None:
            self.first_s = at_s
        if len(self.bound) >= self.size and self.complete_s is None:
            self.complete_s = at_s
        self._settle(at_s)

    def lose(self, uid: str, at_s: float) -> None:
        """A member is gone."""
        self.present.discard(uid)
        is_partial = self.first_s is not None and self.settled_s is None
        if is_partial and uid not in self.bound:
            self.refused.add(uid)
            self._settle(at_s)

    def _settle(self, at_s: float) -> None:
        if self.settled_s is None and len(self.bound) + len(self.refused) >= self.size:
            self.settled_s = at_s


class GroupChecker(Checker):
    """A checker that knows the groups too: `groups` by name, those that are over in `past`.

    `evicted` are the pods that kube-scheduler evicted, by uid.
    """

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # the checker's own
        self.groups: dict[str, GroupState] = {}
        self.past: list[GroupState] = []
        self.evicted: dict[str, str] = {}

    def see(self, change: Change) -> None:
        """Take one change."""
        before = self.pods.get(change.key)
        super().see(change)
        pod = self.pods.get(change.key)
        if before is not None and (pod is None or pod.uid != before.uid):
            self._lose(before, change.at_s)
        if pod is not None:
            self._see_member(pod, change.at_s)
            if _is_evicted(change.value or {}):
                self.evicted.setdefault(pod.uid, pod.full_name)

    def incomplete(self) -> list[str]:
        """Groups of which not all members were bound."""
        return [name for name, group in self.groups.items() if group.complete_s is None]

    def every_group(self) -> Iterator[GroupState]:
        """Those that are over, too."""
        yield from self.past
        yield from self.groups.values()

    def _see_member(self, pod: PodState, at_s: float) -> None:
        wishes = dict(pod.wishes)
        if _SIZE not in wishes:
            return
        group = self._group(f"{pod.namespace}/{wishes[_GROUP]}", int(wishes[_SIZE]))
        group.present.add(pod.uid)
        if pod.node is not None and pod.uid not in group.bound:
            group.bind(pod.uid, pod.node, at_s)

    def _group(self, name: str, size: int) -> GroupState:
        group = self.groups.get(name)
        if group is not None and not group.present:
            self.past.append(self.groups.pop(name))
            group = None
        if group is None:
            group = self.groups[name] = GroupState(name, size)
        return group

    def _lose(self, pod: PodState, at_s: float) -> None:
        group = self.groups.get(f"{pod.namespace}/{dict(pod.wishes).get(_GROUP, '')}")
        if group is not None and pod.uid in group.present:
            group.lose(pod.uid, at_s)


def _is_evicted(pod: Mapping[str, object]) -> bool:
    status = pod.get("status")
    conditions = status.get("conditions") or () if isinstance(status, dict) else ()
    return _EVICTION in {(one["type"], one.get("reason")) for one in conditions}
