"""One group and its members, as far as they have no node: values that `extender.groups` changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from extender.protocol import Reason

if TYPE_CHECKING:
    from extender.groups.planning import OfferedNodes
    from extender.protocol import PodRequest
    from topology.annotations import Plan
    from topology.groups import GroupValue

__all__ = ["Group", "GroupKey", "Member", "Stage"]

GroupKey: TypeAlias = "tuple[str, str]"
"""Namespace and name."""


class Stage(Enum):
    """How far a member is.

    WAITING: nothing is claimed for it. CLAIMED: filter names it the node of its claim. HELD: its
    bind call is there too, and waits for the others'. GOING: its Binding may be written, and what
    becomes of it is up to `extender.bind`.
    """

    WAITING = "waiting"
    CLAIMED = "claimed"
    HELD = "held"
    GOING = "going"


@dataclass(slots=True, eq=False)
class Member:
    """A member that has no node yet.

    `offer` are the nodes of its last filter call, None before the first one. `plan` is what is
    claimed for it, None exactly while it is WAITING; `number` grows with each claim. `is_watched`:
    the watch of pending pods has shown it, and not that it is gone. `filtered_s` is when filter was
    last called for it, None where not since its claim. `is_overdue`: it was pending before we could
    see calls for it, and kube-scheduler may not try it by itself. `woken_s` is when it was last
    woken, `n_asked` how often without a claim.
    """

    request: PodRequest
    since_s: float
    is_watched: bool = False
    offer: OfferedNodes | None = None
    stage: Stage = Stage.WAITING
    plan: Plan | None = None
    number: int = 0
    filtered_s: float | None = None
    woken_s: float | None = None
    is_overdue: bool = False
    n_asked: int = 0

    @property
    def order(self) -> tuple[int, float, str]:
        """By rank, members without one last; then the oldest."""
        rank = self.request.rank
        return _LAST if rank is None else rank, self.since_s, self.request.uid


@dataclass(slots=True, eq=False)
class Group:
    """A group with members that wait, by uid.

    `refusal` is what filter answers to members without a claim, `detail` what a plan that found no
    place says beside it. `is_due`: a plan may find another answer than the last one. `claims_end_s`
    is None while nothing is claimed. `refused` are nodes that members were not offered, since
    `n_replans` plans; `avoided` are nodes that no member gets, until when. Before `look_s` nobody
    is to be woken unless something changes. `complete_s`: since when
    no member is missing. `level`, `domain` and `value` are those of what is claimed.
    """

    key: GroupKey
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    refusal: Reason = Reason.GROUP_WAITING
    detail: str = ""
    is_due: bool = False
    claims_end_s: float | None = None
    n_replans: int = 0
    next_plan_s: float = 0.0
    look_s: float = 0.0
    refused: set[str] = field(default_factory=set[str])
    avoided: dict[str, float] = field(default_factory=dict[str, float])
    complete_s: float | None = None
    level: str = ""
    domain: str = ""
    value: GroupValue | None = None

    @property
    def is_alike(self) -> bool:
        """Whether all members say the same of the group, and request the same kind of GPUs."""
        said = {(one.request.group, one.request.resource) for one in self.members.values()}
        return len(said) <= 1

    @property
    def size(self) -> int:
        """How many members the group has at least, by what they say."""
        wishes = (one.request.group for one in self.members.values())
        return max((wish.size or 0 for wish in wishes if wish is not None), default=0)

    @property
    def ready(self) -> list[Member]:
        """The members that can be planned: there, tried, without a claim; by rank."""
        found = [
            one
            for one in self.members.values()
            if one.is_watched and one.offer is not None and one.stage is Stage.WAITING
        ]
        return sorted(found, key=lambda one: one.order)

    @property
    def ordered(self) -> list[Member]:
        """All members, by rank."""
        return sorted(self.members.values(), key=lambda one: one.order)

    @property
    def has_untried(self) -> bool:
        """Whether filter was not called for some member."""
        return any(one.offer is None for one in self.members.values())

    @property
    def n_watched(self) -> int:
        """How many members are there."""
        return sum(one.is_watched for one in self.members.values())

    @property
    def order(self) -> tuple[int, float, GroupKey]:
        """Which group is planned first: the least priority of its members, then the oldest."""
        priority = min((one.request.priority for one in self.members.values()), default=0)
        since_s = min((one.since_s for one in self.members.values()), default=0.0)
        return -priority, since_s, self.key

    def at(self, *stages: Stage) -> list[Member]:
        """The members at these stages, in the order in which they came."""
        return [one for one in self.members.values() if one.stage in stages]


_LAST = 2**31
