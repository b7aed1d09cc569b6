"""When the Bindings of a group may be written: once the bind calls of all members are there.

It moves members from one stage to the next. It claims and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.groups.members.group import Stage

if TYPE_CHECKING:
    from extender.groups.claims import Claims
    from extender.groups.members.group import Group, Member
    from extender.groups.members.waiting_members import WaitingMembers
    from extender.groups.readings import Journal
    from extender.state import LiveCluster

__all__ = ["Releases"]


@dataclass(frozen=True, slots=True)
class Releases:
    """Releases groups."""

    waiting: WaitingMembers
    cluster: LiveCluster
    claims: Claims
    journal: Journal

    def arrive(self, group: Group, member: Member, n_open: int) -> None:
        """The bind call of a member with a claim is there; `n_open` members are missing."""
        if member.stage is Stage.CLAIMED:
            member.stage = Stage.HELD
            self.settle(group, n_open)

    def settle(self, group: Group, n_open: int) -> None:
        """Release the group if the bind calls of as many as are missing are there.

        Not one whose devices are gone, as they may be since the claim.
        """
        held = group.at(Stage.HELD)
        if not held or len(held) < n_open:
            return
        lost = [one for one in held if not self.claims.is_intact(one)]
        for member in lost:
            self.claims.give_back(member)
            group.is_due = True
        kept = group.at(Stage.HELD)
        if len(kept) >= n_open:
            for member in kept:
                member.stage = Stage.RELEASED
            self.journal.release(group, kept)
            group.n_failed = group.n_lapsed = 0
            group.forget_refusals()

    def is_released(self, uid: str) -> bool:
        """Whether a member's Binding may be written now."""
        found = self.waiting.find(uid)
        return found is not None and found[1].stage is Stage.RELEASED

    def is_held(self, uid: str) -> bool:
        """Whether a member's bind call is still to wait.

        For the calls of others, and on a node whose kubelet aligns to NUMA nodes for the Bindings
        of members that were planned there before it: each was planned with what those leave.
        """
        found = self.waiting.find(uid)
        if found is None:
            return False
        group, member = found
        if member.plan is None or member.stage is not Stage.RELEASED:
            return member.stage is Stage.HELD
        node = member.plan.node
        return self.cluster.aligns(node) and any(
            one.number < member.number and one.plan is not None and one.plan.node == node
            for one in group.at(Stage.RELEASED)
        )

    def leave(self, uid: str) -> None:
        """A member's bind call ended before the group was released."""
        found = self.waiting.find(uid)
        if found is not None and found[1].stage is Stage.HELD:
            found[1].stage = Stage.CLAIMED
