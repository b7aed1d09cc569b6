"""What became of the groups whose Bindings were written.

For Events and metrics, which are read now and then; nothing is decided from it, and it keeps a
bounded number of outcomes that are not read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extender.groups.members.group import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from extender.groups.members.bound_members import BoundMembers
    from extender.groups.members.group import Group, GroupKey, Member
    from extender.state.pods import PodTracker
    from topology.groups import GroupValue

__all__ = ["GroupOutcome", "Journal"]

MAX_OUTCOMES = 1_000
"""Outcomes kept until they are taken; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The Bindings of a group's members were written, or came to nothing.

    `uid` and `name` are those of the released member of the lowest rank, `nodes` those of all that
    were released by uid, of which `n_bound` have their node. `complete_s`: since when no member was
    missing.
    """

    key: GroupKey
    uid: str
    name: str
    nodes: Mapping[str, str]
    level: str
    domain: str
    value: GroupValue | None
    complete_s: float | None
    n_bound: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every member has its node."""
        return self.n_bound == len(self.nodes)


class Journal:
    """The releases that have not ended, and the outcomes of those that have."""

    def __init__(self) -> None:
        self._open: dict[GroupKey, GroupOutcome] = {}
        self._outcomes: deque[GroupOutcome] = deque(maxlen=MAX_OUTCOMES)

    def release(self, group: Group, members: Sequence[Member]) -> None:
        """The Bindings of these members may be written now."""
        first = min(members, key=lambda one: one.order).request
        nodes = {one.request.uid: one.plan.node for one in members if one.plan is not None}
        before = self._open.get(group.key)
        if before is not None:
            nodes = {**before.nodes, **nodes}
        self._open[group.key] = GroupOutcome(
            group.key,
            first.uid,
            first.name,
            nodes,
            group.level,
            group.domain,
            group.value,
            group.complete_s,
        )

    def settle(
        self, groups: Mapping[GroupKey, Group], bound: BoundMembers, pods: PodTracker
    ) -> None:
        """End the releases of which no Binding is open.

        One is open too for a pod that has left the watch of pending pods, which can be ahead of the
        watch that shows its node: `pods` has what is assumed of it until its Binding has an end.
        """
        for key, one in tuple(self._open.items()):
            group = groups.get(key)
            if group is not None and (group.at(Stage.RELEASED) or group.has_unsure):
                continue
            unbound = [uid for uid in one.nodes if bound.key_of(uid) is None]
            if any(pods.get(uid) is not None for uid in unbound):
                continue
            del self._open[key]
            self._outcomes.append(replace(one, n_bound=len(one.nodes) - len(unbound)))

    def take(self) -> tuple[GroupOutcome, ...]:
        """The outcomes since the last call."""
        taken = tuple(self._outcomes)
        self._outcomes.clear()
        return taken
