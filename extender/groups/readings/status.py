"""How a group stands: values for Events, metrics, explanations and the read API.

They are read from what `extender.groups.groups` knows; nothing is decided from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.groups.members.group import Group, GroupKey
    from extender.protocol import Reason
    from topology.groups import GroupValue

__all__ = ["GroupStatus", "MemberStatus", "status_of"]


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member that has no node yet. `node` is the one that is claimed for it, None for none."""

    uid: str
    name: str
    since_s: float
    size_gpus: int
    node: str | None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group now.

    `size` is how many members with GPUs there must be at least, None where none
    waits. `members` are those that have no node, by rank and then
    age; `bound` the nodes of the others by uid. `reason` is what filter answers to those without a
    claim, `detail` the counts of the last plan that found no place. `complete_s`: since when none
    is missing. `level`, `domain` and `value` are those of what is claimed; the value is None also
    where it is unknown.
    """

    key: GroupKey
    bound: Mapping[str, str]
    size: int | None = None
    members: tuple[MemberStatus, ...] = ()
    reason: Reason | None = None
    detail: str = ""
    complete_s: float | None = None
    level: str = ""
    domain: str = ""
    value: GroupValue | None = None

    @property
    def title(self) -> str:
        """Namespace and name."""
        return "/".join(self.key)

    @property
    def n_here(self) -> int:
        """How many members there are, with and without a node."""
        return len(self.members) + len(self.bound)

    @property
    def n_missing(self) -> int:
        """How many more there must be."""
        return max((self.size or 0) - self.n_here, 0)

    @property
    def n_claimed(self) -> int:
        """For how many members without a node devices are claimed."""
        return sum(one.node is not None for one in self.members)


def status_of(group: Group, *, size: int, bound: Mapping[str, str]) -> GroupStatus:
    """How a group with members that have no node stands."""
    members = tuple(
        MemberStatus(
            one.request.uid,
            one.request.name,
            one.since_s,
            one.request.size_gpus,
            None if one.plan is None else one.plan.node,
            one.request.rank,
        )
        for one in sorted(group.members.values(), key=lambda one: one.order)
        if one.is_watched
    )
    is_claimed = any(one.node is not None for one in members)
    return GroupStatus(
        group.key,
        bound,
        size,
        members,
        group.refusal,
        group.detail,
        group.complete_s,
        group.level if is_claimed else "",
        group.domain if is_claimed else "",
        group.value if is_claimed else None,
    )
