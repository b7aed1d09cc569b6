"""What a plan for the members of a group starts from, and how it ends. It chooses nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from extender.protocol import PodRequest, Reason
    from topology.annotations import Plan
    from topology.groups import GroupValue

__all__ = ["JointPlan", "Near", "NoPlace"]


@dataclass(frozen=True, slots=True)
class JointPlan:
    """A plan for each member. `level` and `domain` are those that hold all of them.

    `value` is that of the group with those that have a node already, None where it is unknown.
    """

    placements: tuple[tuple[PodRequest, Plan], ...]
    level: str
    domain: str
    value: GroupValue | None = None


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why there is no plan: `detail` has the counts, and `n_room` members have room."""

    reason: Reason
    detail: str = ""
    n_room: int | None = None


@dataclass(frozen=True, slots=True)
class Near:
    """Nodes of members that have one, and of those that ended lately. `avoided` get no member.

    `most` is how many members some nodes take, `most_elsewhere` all others: those that have one
    count. `former_by_rank` are the nodes of those that ended, by their ranks.
    """

    nodes: Sequence[str] = ()
    former: Sequence[str] = ()
    avoided: Collection[str] = frozenset()
    most: Mapping[str, int] = field(default_factory=dict[str, int])
    most_elsewhere: int | None = None
    former_by_rank: Mapping[int, str] = field(default_factory=dict[int, str])

    def own(self, request: PodRequest) -> str | None:
        """The node of the ended member that a member replaces by its rank."""
        return None if request.rank is None else self.former_by_rank.get(request.rank)
