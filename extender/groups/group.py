"""One group and its members, as far as they wait: values that `extender.groups.groups` changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from extender.protocol import Reason

if TYPE_CHECKING:
    from extender.protocol import PodRequest
    from topology.annotations import GroupWish, Plan

__all__ = ["Group", "GroupKey", "Member"]

GroupKey: TypeAlias = "tuple[str, str]"
"""Namespace and name."""


@dataclass(slots=True, eq=False)
class Member:
    """A member that has no node yet.

    `left_out` are the nodes that kube-scheduler's own filters had excluded in the last filter call,
    None before the first one. `plan` is what is claimed for it; `is_here`: its bind call is held.
    `is_watched`: the watch of pending pods has shown it, and not that it is gone. `is_overdue`: it
    was pending before we could see calls for it, and kube-scheduler may not try it by itself.
    `woken_s` is when it was last woken, `n_asked` how often without a claim.
    """

    request: PodRequest
    since_s: float
    left_out: frozenset[str] | None = None
    plan: Plan | None = None
    is_here: bool = False
    is_watched: bool = False
    filtered_s: float | None = None
    woken_s: float | None = None
    is_overdue: bool = False
    n_asked: int = 0


@dataclass(slots=True, eq=False)
class Group:
    """A group with members that wait, by uid.

    `refusal` is what filter answers to them. `claims_end_s` is None while nothing is claimed;
    `is_released`: all bind calls were there, and the Bindings are written. `avoided` are nodes that
    a member could not go to, until when.
    """

    key: GroupKey
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    refusal: Reason = Reason.GROUP_WAITING
    is_due: bool = False
    claims_end_s: float | None = None
    is_released: bool = False
    n_replans: int = 0
    next_plan_s: float = 0.0
    avoided: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def wishes(self) -> set[GroupWish]:
        """What the members say of the group: one value, unless they differ."""
        return {one.request.group for one in self.members.values() if one.request.group is not None}

    @property
    def size(self) -> int:
        """How many members there must be at least."""
        return max((wish.size or 0 for wish in self.wishes), default=0)

    @property
    def asked(self) -> list[Member]:
        """The members that kube-scheduler has tried to place, in the order of their ranks."""
        found = [one for one in self.members.values() if one.left_out is not None]
        return sorted(found, key=_order)

    @property
    def order(self) -> tuple[int, float, GroupKey]:
        """Which group is planned first: the least priority of its members, then the oldest."""
        priority = min((one.request.priority for one in self.members.values()), default=0)
        since_s = min((one.since_s for one in self.members.values()), default=0.0)
        return -priority, since_s, self.key


def _order(member: Member) -> tuple[int, float, str]:
    """By rank, members without one last; then the oldest."""
    rank = member.request.rank
    return _LAST if rank is None else rank, member.since_s, member.request.uid


_LAST = 2**31
