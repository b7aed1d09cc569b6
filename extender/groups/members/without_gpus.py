"""Members without GPUs of groups whose size counts them: a leader, a launcher.

The size of a group that is inferred from another project's keys counts all its pods, and
kube-scheduler calls the extender for those with GPUs alone. Those without are seen in the watch of
pending pods, and once they have a node in that of assigned ones. It changes no group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from extender.groups.members.group import GroupKey

__all__ = ["WithoutGpus"]


class WithoutGpus:
    """Which pods these are, and of which groups."""

    def __init__(self) -> None:
        self._pending: dict[str, GroupKey] = {}
        self._bound: dict[str, GroupKey] = {}

    def see(self, uid: str, key: GroupKey, *, is_bound: bool) -> None:
        """A watch shows such a pod."""
        (self._bound if is_bound else self._pending)[uid] = key

    def not_pending(self, uid: str) -> None:
        """It is gone, or has a node: the other watch says which."""
        self._pending.pop(uid, None)

    def keep_pending(self, listed: Container[str]) -> None:
        """Those that wait are among these."""
        self._pending = {uid: key for uid, key in self._pending.items() if uid in listed}

    def end(self, uid: str) -> None:
        """It ended, or is gone."""
        self._pending.pop(uid, None)
        self._bound.pop(uid, None)

    def count(self, key: GroupKey) -> int:
        """How many members of a group have no GPUs."""
        found = {uid for of in (self._pending, self._bound) for uid in of if of[uid] == key}
        return len(found)
