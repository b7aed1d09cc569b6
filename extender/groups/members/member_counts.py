"""How many members of a group are missing: what must still come before it may be placed.

It counts. What follows is for `extender.groups.groups`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.groups.members.group import Stage

if TYPE_CHECKING:
    from extender.groups.members.bound_members import BoundMembers
    from extender.groups.members.group import Group
    from extender.groups.members.without_gpus import WithoutGpus

__all__ = ["MemberCounts"]


@dataclass(frozen=True, slots=True)
class MemberCounts:
    """Counts of one engine's groups."""

    bound: BoundMembers
    without_gpus: WithoutGpus

    def size(self, group: Group) -> int:
        """How many members with GPUs there must be at least."""
        return group.size - self.without_gpus.count(group.key)

    def n_open(self, group: Group) -> int:
        """How many members must still come, or be released.

        No more than wait where some were bound already: the others may have ended since.
        """
        n_released = len(group.at(Stage.RELEASED))
        n_open = self.size(group) - self.bound.count(group.key) - n_released
        if self.bound.has_begun(group.key):
            n_open = min(n_open, self._n_waiting(group))
        return n_open

    def is_complete(self, group: Group) -> bool:
        """Whether as many wait as must still be released."""
        return self._n_waiting(group) >= self.n_open(group)

    def is_whole(self, group: Group) -> bool:
        """Whether as many were bound, since the group began, as it must have members."""
        return self.bound.n_ever(group.key) >= self.size(group)

    def _n_waiting(self, group: Group) -> int:
        """How many members are there of which the Binding may not be written yet."""
        members = group.members.values()
        return sum(one.is_watched and one.stage is not Stage.RELEASED for one in members)
