"""The groups with members that have no node, and which pod is a member of which.

It keeps both in step: a pod is in one group at most, and a group without such members is none. What
follows for either is for `extender.groups.groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.groups.members.group import Group

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from extender.groups.members.group import GroupKey, Member

__all__ = ["WaitingMembers"]


class WaitingMembers:
    """The members without a node of one engine's groups; `uids` are all of them."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Group] = {}
        self._keys: dict[str, GroupKey] = {}
        self.uids: AbstractSet[str] = self._keys.keys()

    @property
    def groups(self) -> Mapping[GroupKey, Group]:
        """The groups, the oldest first; the same object as they change."""
        return self._groups

    def find(self, uid: str) -> tuple[Group, Member] | None:
        """A member with its group; None for every other pod."""
        key = self._keys.get(uid)
        if key is None:
            return None
        group = self._groups[key]
        return group, group.members[uid]

    def add(self, key: GroupKey, member: Member) -> Group:
        """A pod that is no member of any group becomes one of this group."""
        uid = member.request.uid
        group = self._groups.setdefault(key, Group(key))
        group.members[uid] = member
        self._keys[uid] = key
        return group

    def remove(self, uid: str) -> None:
        """A member is none any more."""
        key = self._keys.pop(uid)
        group = self._groups[key]
        del group.members[uid]
        if not group.members:
            del self._groups[key]
