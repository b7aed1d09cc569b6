"""The promises about groups, checked from the same revisions of etcd.

Imports nothing of Coterie. A group is *partly bound* from the revision that binds its first member
until one at which as many have been bound as its size says. Members count once bound, whatever
becomes of them; a member that was deleted before it was bound does not count, and what took its
place does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.cluster.fleet.checker import Checker

if TYPE_CHECKING:
    from tests.cluster.fleet.checker import Change, PodState

__all__ = ["GroupChecker", "GroupState"]

_GROUP, _SIZE = "coterie.gpu/group", "coterie.gpu/group-size"


@dataclass(slots=True)
class GroupState:
    """One group; `lost` are members that were deleted while it was partly bound."""

    size: int
    bound: dict[str, str] = field(default_factory=dict)
    first_s: float | None = None
    complete_s: float | None = None
    lost: set[str] = field(default_factory=set)

    @property
    def partial_s(self) -> float:
        """How long it was partly bound, or is."""
        if self.first_s is None:
            return 0.0
        until_s = time.monotonic() if self.complete_s is None else self.complete_s
        return until_s - self.first_s


class GroupChecker(Checker):
    """A checker that knows the groups too, by namespace and name."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # the checker's own
        self.groups: dict[tuple[str, str], GroupState] = {}

    def see(self, change: Change) -> None:
        """Take one change."""
        before = self.pods.get(change.key)
        super().see(change)
        pod = self.pods.get(change.key)
        if pod is not None:
            self._see_member(pod, change.at_s)
        elif before is not None:
            self._lose_member(before)

    def _see_member(self, pod: PodState, at_s: float) -> None:
        wishes = dict(pod.wishes)
        if _SIZE not in wishes:
            return
        key = pod.namespace, wishes[_GROUP]
        group = self.groups.setdefault(key, GroupState(int(wishes[_SIZE])))
        if pod.node is None or pod.uid in group.bound:
            return
        group.bound[pod.uid] = pod.node
        if group.first_s is None:
            group.first_s = at_s
        if len(group.bound) >= group.size and group.complete_s is None:
            group.complete_s = at_s

    def _lose_member(self, pod: PodState) -> None:
        group = self.groups.get((pod.namespace, dict(pod.wishes).get(_GROUP, "")))
        if group is not None and group.first_s is not None and group.complete_s is None:
            group.lost.add(pod.uid)

    def incomplete(self) -> list[tuple[str, str]]:
        """Groups of which not all members were bound."""
        return [key for key, group in self.groups.items() if group.complete_s is None]
