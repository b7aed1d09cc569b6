"""One group and its members, as far as they have no node: values that `extender.groups` changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from extender.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extender.groups.planning import OfferedNodes
    from extender.protocol import PodRequest
    from topology.annotations import Plan
    from topology.groups import GroupValue

__all__ = ["NO_PLACE", "NO_ROOM", "Group", "GroupKey", "Member", "Stage", "difference"]

GroupKey: TypeAlias = "tuple[str, str]"
"""Namespace and name."""
NO_ROOM = frozenset({Reason.GROUP_NO_ROOM, Reason.GROUP_ONE_MODEL, Reason.GROUP_TOO_SLOW})
"""There may be room, or room that is fast enough, once other pods end."""
NO_PLACE = NO_ROOM | {Reason.GROUP_NEVER, Reason.GROUP_MODEL_NEVER}
"""There may be none at all: what a plan that found no place says."""
UNWATCHED_S = 60.0
"""How long a member is kept that filter was called for and that no watch shows: it was deleted
before the call came, or the watch is late."""


class Stage(Enum):
    """How far a member is.

    WAITING: nothing is claimed for it. CLAIMED: filter names it the node of its claim. HELD: its
    bind call is there too, and waits for the others'. RELEASED: its Binding may be written, and
    what becomes of it is up to `extender.bind`.
    """

    WAITING = "waiting"
    CLAIMED = "claimed"
    HELD = "held"
    RELEASED = "released"


@dataclass(slots=True, eq=False)
class Member:
    """A member that has no node yet.

    `offer` are the nodes of its last filter call, None before the first one; `is_sampled`: the call
    before it named as many others, so that kube-scheduler looks at some nodes only. `expected` are
    the nodes of its next call, where members whose last calls named the same ones have been called
    for since, and were offered more. `plan` is what is claimed for it, None exactly while it is
    WAITING; `number` grows with each claim. `is_watched`: the watch of pending pods has shown it,
    and not that it is gone. `filtered_s` is when filter was last called for it, None where not
    since its claim. `is_overdue`: it was pending before we could see calls for it, and
    kube-scheduler may not try it by itself. `woken_s` is when it was last woken, `n_asked` how
    often without a claim. `is_unsure`: a Binding of its plan may have been written; the plan is
    kept until that is known. `answered` is the reason that its last call was answered with, None
    where it has a claim, and `n_updates` how often it was woken since for another one.
    """

    request: PodRequest
    since_s: float
    is_watched: bool = False
    offer: OfferedNodes | None = None
    is_sampled: bool = False
    expected: OfferedNodes | None = None
    stage: Stage = Stage.WAITING
    plan: Plan | None = None
    number: int = 0
    filtered_s: float | None = None
    woken_s: float | None = None
    is_overdue: bool = False
    n_asked: int = 0
    is_unsure: bool = False
    answered: Reason | None = None
    n_updates: int = 0

    @property
    def order(self) -> tuple[int, float, str]:
        """By rank, members without one last; then the oldest."""
        rank = self.request.rank
        return _LAST if rank is None else rank, self.since_s, self.request.uid

    def is_forgotten(self, now_s: float) -> bool:
        """Whether filter was called for it long ago, and no watch shows it."""
        seen_s = self.since_s if self.filtered_s is None else self.filtered_s
        return not self.is_watched and seen_s + UNWATCHED_S <= now_s


@dataclass(slots=True, eq=False)
class Group:
    """A group with members that wait, by uid.

    `refusal` is what filter answers to members without a claim, `detail` what a plan that found no
    place says beside it. `is_due`: a plan may find another answer than the last one, not before
    `next_plan_s`. `n_no_room` plans found no place since `planned_s`, after which `n_freed` devices
    came free. `n_failed`: how often all claims ended
    before every bind call had come, `n_lapsed` of these with their time.
    `claims_end_s` is None while nothing is claimed. `refused` are nodes that members were not
    offered, since `n_replans` plans; `avoided` are nodes that no member gets, until when. `most` is
    how many members a node takes, until `most_end_s`: more were not offered it. `sampled` are the
    nodes of all calls of members that are sampled. `complete_s`: since when no member is missing.
    `level`, `domain` and `value` are those of what is claimed.
    """

    key: GroupKey
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    refusal: Reason = Reason.GROUP_WAITING
    detail: str = ""
    is_due: bool = False
    claims_end_s: float | None = None
    n_replans: int = 0
    n_failed: int = 0
    n_lapsed: int = 0
    next_plan_s: float = 0.0
    planned_s: float = 0.0
    n_no_room: int = 0
    n_freed: int = 0
    refused: set[str] = field(default_factory=set[str])
    avoided: dict[str, float] = field(default_factory=dict[str, float])
    most: dict[str, int] = field(default_factory=dict[str, int])
    most_end_s: float | None = None
    sampled: OfferedNodes | None = None
    complete_s: float | None = None
    level: str = ""
    domain: str = ""
    value: GroupValue | None = None

    @property
    def is_alike(self) -> bool:
        """Whether all members say the same of the group, and request the same kind of GPUs."""
        said = {(one.request.group, one.request.resource) for one in self.counted}
        return len(said) <= 1

    @property
    def difference(self) -> str:
        """What the first member states and another states otherwise; empty where they agree."""
        return difference([one.request for one in self.counted])

    @property
    def counted(self) -> list[Member]:
        """The members that are there; while none is, those for which filter was called."""
        return [one for one in self.members.values() if one.is_watched] or [*self.members.values()]

    @property
    def size(self) -> int:
        """How many members the group has at least, by what they say."""
        wishes = (one.request.group for one in self.counted)
        return max((wish.size or 0 for wish in wishes if wish is not None), default=0)

    @property
    def has_unsure(self) -> bool:
        """Whether a Binding of a member may have been written."""
        return any(one.is_unsure for one in self.members.values())

    @property
    def is_unsettled(self) -> bool:
        """Whether something ends with time.

        That are claims, Bindings, members that no watch shows, and what is known of nodes.
        """
        ends_s = self.claims_end_s, self.most_end_s
        return ends_s != (None, None) or any(
            not one.is_watched or one.is_unsure or one.stage is Stage.RELEASED
            for one in self.members.values()
        )

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
    def n_watched(self) -> int:
        """How many members are there."""
        return sum(one.is_watched for one in self.members.values())

    @property
    def order(self) -> tuple[int, int, float, GroupKey]:
        """Which group is planned first: the least priority of its members, then the oldest.

        Those last whose claims ended without a bind, so that others may have the devices.
        """
        since_s = min((one.since_s for one in self.counted), default=0.0)
        return self.n_failed, -self.priority, since_s, self.key

    @property
    def priority(self) -> int:
        """The least of its members, since they start together."""
        return min((one.request.priority for one in self.counted), default=0)

    def refuse(self, reason: Reason, detail: str = "") -> None:
        """What filter answers to members without a claim."""
        self.refusal, self.detail = reason, detail

    def forget_refusals(self) -> None:
        """What kube-scheduler did not offer to members is tried again."""
        self.n_replans, self.most_end_s = 0, None
        self.refused.clear()
        self.most.clear()

    def at(self, *stages: Stage) -> list[Member]:
        """The members at these stages, in the order in which they came."""
        return [one for one in self.members.values() if one.stage in stages]


def difference(requests: Sequence[PodRequest]) -> str:
    """What the first of these members states and another states otherwise; empty: they agree."""
    first, *others = requests
    said = _statement(first)
    for other in others:
        says = _statement(other)
        differs = [key for key in said if said[key] != says[key]]
        if differs:
            of_first = " and ".join(f"{key} {said[key]}" for key in differs)
            of_other = " and ".join(f"{key} {says[key]}" for key in differs)
            return f"{first.name} states {of_first}, {other.name} {of_other}"
    return ""


def _statement(request: PodRequest) -> dict[str, str]:
    """What a member states of its group, and what all members must request alike."""
    wish = request.group
    assert wish is not None  # noqa: S101 - a member has a group
    return {
        "size": str(wish.size),
        "domain": wish.domain,
        "policy": wish.strength.value,
        "resource": str(request.resource),
    }


_LAST = 2**31
