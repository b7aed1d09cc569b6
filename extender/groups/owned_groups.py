"""Groups whose size another object says: their members wait until it was read.

It asks for what is to be read and takes what was: members get the size, or are placed without a
group and are woken for that. It makes no request, and plans nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.groups.members.owner_sizes import OwnerSizes
from kube.objects import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from extender.groups.members.group import Group, GroupKey
    from extender.groups.members.member_counts import MemberCounts
    from extender.protocol import GroupOwner, PodRequest

__all__ = ["OwnedGroups"]


class OwnedGroups:
    """Of one engine. `review` and `lose` are those of `extender.groups.groups`.

    `reads`: whether there is what reads the owners; else their pods have no group.
    """

    def __init__(
        self,
        groups: Mapping[GroupKey, Group],
        counts: MemberCounts,
        *,
        reads: bool,
        review: Callable[[Group], None],
        lose: Callable[[str], None],
    ) -> None:
        self._groups = groups
        self._counts = counts
        self._sizes = OwnerSizes(reads=reads)
        self._review = review
        self._lose = lose
        self._alone: list[PodRequest] = []

    def resolve(self, request: PodRequest) -> PodRequest:
        """The pod with the size of its group, or without a group, as far as that is known."""
        return self._sizes.resolve(request)

    def use(self, request: PodRequest, now_s: float) -> PodRequest:
        """The same of a pod that was seen or tried: its owner is read where that is due."""
        return self._sizes.use(request, now_s, self._has_members)

    def pods_changed(self, request: PodRequest) -> None:
        """A member came or went."""
        if request.group_owner is not None:
            self._sizes.pods_changed(request.group_owner)

    def ended(self, key: GroupKey | None) -> None:
        """A pod that was placed without its group ended: it may be one that is not made again."""
        group = None if key is None else self._groups.get(key)
        if group is not None:
            self.pods_changed(group.ordered[0].request)

    def take_wanted(self, now_s: float) -> list[GroupOwner]:
        """The owners that are to be read now, each until `read` is called for it."""
        return self._sizes.take(now_s, self._waits)

    def read(self, owner: GroupOwner, size: int | None, now_s: float) -> None:
        """An owner was read; None: its pods are placed without a group."""
        key = _key(owner)
        group = self._groups.get(key)
        runs_alone = self._counts.without_gpus.runs_alone(key)
        is_new = self._sizes.read(owner, size, now_s, runs_alone=runs_alone)
        if not is_new or group is None:
            return
        for uid, member in tuple(group.members.items()):
            member.request = self._sizes.resolve(member.request)
            if member.request.group is None:
                if member.offer is not None or member.is_overdue:
                    self._alone.append(member.request)
                self._lose(uid)
        if group.members:
            self._review(group)

    @property
    def has_alone(self) -> bool:
        """Whether `take_alone` has a pod."""
        return bool(self._alone)

    def take_alone(self) -> list[PodRequest]:
        """Pods that were refused as members and are none, since the last call: to be woken."""
        alone, self._alone = self._alone, []
        return alone

    def expire(self, now_s: float) -> None:
        """Forget owners that no pod has named for long."""
        self._sizes.expire(now_s, self._waits)

    def first_member(self, owner: GroupOwner) -> ObjectKey | None:
        """The first of the pods whose group has no size yet; None where there is none."""
        group = self._groups.get(_key(owner))
        if group is None or group.is_sized:
            return None
        first = group.ordered[0].request
        return ObjectKey(first.namespace, first.name, first.uid)

    def _waits(self, owner: GroupOwner) -> bool:
        return _key(owner) in self._groups

    def _has_members(self, owner: GroupOwner) -> bool:
        return self._waits(owner) or self._counts.bound.count(_key(owner)) > 0


def _key(owner: GroupOwner) -> GroupKey:
    return owner.namespace, owner.group_name
