"""Members of groups that take no part in placing them: a leader or launcher without GPUs.

The size of a group that is inferred from another project's keys counts all its pods, and
kube-scheduler calls the extender for those with GPUs alone. Those without are seen in the watch of
pending pods, and once they have a node in that of assigned ones. So are members that were placed
without their group, before the setting named its kind. It changes no group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container
    from collections.abc import Set as AbstractSet

    from extender.groups.members.group import GroupKey

__all__ = ["WithoutGpus"]


class WithoutGpus:
    """Which pods these are, and of which groups."""

    def __init__(self) -> None:
        self._pending: dict[str, GroupKey] = {}
        self._bound: dict[str, GroupKey] = {}
        self._uids: dict[GroupKey, set[str]] = {}

    @property
    def bound(self) -> AbstractSet[str]:
        """Those that have a node."""
        return self._bound.keys()

    def see(self, uid: str, key: GroupKey, *, is_bound: bool) -> None:
        """A watch shows such a pod."""
        of = self._bound if is_bound else self._pending
        self._drop(uid, of)
        of[uid] = key
        self._uids.setdefault(key, set()).add(uid)

    def not_pending(self, uid: str) -> None:
        """It is gone, or has a node: the other watch says which."""
        self._drop(uid, self._pending)

    def keep_pending(self, listed: Container[str]) -> None:
        """Those that wait are among these."""
        for uid in [one for one in self._pending if one not in listed]:
            self.not_pending(uid)

    def end(self, uid: str) -> None:
        """It ended, or is gone."""
        self._drop(uid, self._pending)
        self._drop(uid, self._bound)

    def count(self, key: GroupKey) -> int:
        """How many such members a group has."""
        return len(self._uids.get(key, ()))

    def _drop(self, uid: str, of: dict[str, GroupKey]) -> None:
        key = of.pop(uid, None)
        if key is None or key in {self._pending.get(uid), self._bound.get(uid)}:
            return
        uids = self._uids[key]
        uids.remove(uid)
        if not uids:
            del self._uids[key]
