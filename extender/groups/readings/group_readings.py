"""Reads one engine's groups: how they stand, what is held, what became of those that were placed.

It changes no group, but takes outcomes from the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.groups.members.group import Stage
from extender.groups.near_members import near_bound_members
from extender.groups.readings.journal import Journal
from extender.groups.readings.status import GroupStatus, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from extender.groups.claims import Claims
    from extender.groups.members.group import Group, GroupKey
    from extender.groups.members.member_counts import MemberCounts
    from extender.groups.planning import Near
    from extender.groups.readings.journal import GroupOutcome
    from extender.state import LiveCluster

__all__ = ["GroupReadings"]

CALLED_S = 600.0
"""After the last filter call without which another extender may be the one that places groups:
kube-scheduler tries a pod that waits again after 5 minutes at most."""


class GroupReadings:
    """Readings of one engine's groups; `called_s` is when filter was called last, None for never.

    Beside a kube-scheduler that does not lead it is not called.
    """

    def __init__(
        self,
        groups: Mapping[GroupKey, Group],
        counts: MemberCounts,
        claims: Claims,
        cluster: LiveCluster,
    ) -> None:
        self._groups = groups
        self._counts = counts
        self._claims = claims
        self._pods = cluster.pods
        self.journal = Journal()
        self.called_s: float | None = None

    def is_placing(self, now_s: float) -> bool:
        """Whether what waits here is told: elsewhere it is not known why."""
        return self.called_s is not None and now_s < self.called_s + CALLED_S

    @property
    def n_held(self) -> int:
        """How many bind calls wait for those of other members."""
        return sum(len(group.at(Stage.HELD)) for group in self._groups.values())

    @property
    def n_replans(self) -> int:
        """How many members could not follow a plan, so far."""
        return self._claims.n_replans

    def take_outcomes(self) -> tuple[GroupOutcome, ...]:
        """What became of released groups since the last call."""
        self.journal.settle(self._groups, self._counts.bound, self._pods)
        return self.journal.take()

    def counts(self, key: GroupKey) -> tuple[int, int, int]:
        """How many members wait, how many are bound, and the group's size, 0 for unknown."""
        group, n_bound = self._groups.get(key), self._counts.bound.count(key)
        if group is None:
            return 0, n_bound, 0
        return group.n_watched, n_bound, self._counts.size(group)

    def near(self, key: GroupKey) -> Near | None:
        """Where members of a group run, or ran lately; None for one that has not begun."""
        bound = self._counts.bound
        return near_bound_members(key, bound) if bound.has_begun(key) else None

    def status(self, key: GroupKey) -> GroupStatus:
        """How a group stands, also one of which nothing is known."""
        group, bound = self._groups.get(key), self._counts.bound.by_uid(key)
        if group is None:
            return GroupStatus(key, bound)
        size = self._counts.size(group)
        if self._counts.bound.has_begun(key):  # those that ended are not missing
            size = min(size, group.n_watched + len(bound))
        return status_of(
            group,
            size=size,
            bound=bound,
        )

    def statuses(self) -> Iterator[GroupStatus]:
        """The groups with members that have no node, by name."""
        return (self.status(key) for key in sorted(self._groups))
