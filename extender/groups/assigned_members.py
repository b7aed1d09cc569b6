"""Which members have a node, and which that had one ended: what the watch of assigned pods shows.

A member of a group with GPUs is bound; one without counts in the size of a group that counts it,
and so does a pod that was placed without the group. No pod is both. It plans nothing, and knows no
pod that waits: `depart` and `review` are those of `extender.groups.groups`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from extender.groups.members.group import Group, GroupKey
    from extender.groups.members.member_counts import MemberCounts
    from topology.annotations import PlanGroup

__all__ = ["AssignedMembers"]


@dataclass(frozen=True, slots=True)
class AssignedMembers:
    """Of one engine's groups, as they are counted in `counts`."""

    groups: Mapping[GroupKey, Group]
    counts: MemberCounts
    depart: Callable[[str], None]
    review: Callable[[Group], None]

    def see(self, uid: str, namespace: str, group: PlanGroup, node: str) -> None:
        """A pod with a node, and its group; it leaves the group that it had, as by other labels."""
        key = namespace, group.name
        if self.counts.bound.key_of(uid) not in {None, key}:
            self.end(uid)
        is_new = self.counts.bound.add(uid, key, node, group.rank)
        self.counts.without_gpus.end(uid)
        self.depart(uid)
        if is_new:
            self._review(key)

    def see_by_count(self, uid: str, namespace: str, group: PlanGroup, node: str) -> None:
        """A pod with a node and without a plan, and the group that its keys name.

        Nothing for one that counts in the size already, as those of kinds whose size counts all
        pods do: it may have been placed without the group. So no member is placed near it.
        """
        if uid not in self.counts.without_gpus.bound:
            self.see(uid, namespace, group, node)

    def see_without_gpus(self, uid: str, key: GroupKey, *, is_bound: bool = False) -> None:
        """A member without GPUs of a group whose size counts it, or one placed without the group.

        `is_bound`: it has a node.
        """
        if self.counts.bound.key_of(uid) is not None:
            return  # it has GPUs, on a node where they are only counted
        self.counts.without_gpus.see(uid, key, is_bound=is_bound)
        self._review(key)

    def keep(self, uids: Iterable[str]) -> None:
        """All pods with a node were seen: members without GPUs that are not among them are gone.

        Of those with GPUs each has its `end`.
        """
        for uid in self.counts.without_gpus.bound - frozenset(uids):
            self.end(uid)

    def end(self, uid: str) -> None:
        """A pod ended, or is gone."""
        self.counts.without_gpus.end(uid)
        key = self.counts.bound.key_of(uid)
        if key is not None:
            group = self.groups.get(key)
            is_over = group is None or self.counts.is_whole(group)
            self.counts.bound.end(uid, starts_over=is_over)
            self._review(key)

    def _review(self, key: GroupKey) -> None:
        group = self.groups.get(key)
        if group is not None:
            self.review(group)
