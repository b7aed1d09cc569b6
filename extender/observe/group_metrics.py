"""Metrics of groups: who waits, what is held, what was placed and how long that took.

A metric's help says what it is good for; docs/operations.md is generated from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from extender.groups import GroupOutcome, GroupStatus

__all__ = ["GroupMetrics"]

_PREFIX = "coterie_extender_"
_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86_400.0)
"""From a group on an idle cluster to one that waits a day for room."""


class CountedGroups(Protocol):
    """What is needed of `extender.groups.GroupReadings`."""

    @property
    def n_replans(self) -> int:
        """Plans that were made again because a member could not follow the last one."""
        ...

    @property
    def n_held(self) -> int:
        """Bind calls that wait for those of other members."""
        ...

    def statuses(self) -> Iterator[GroupStatus]:
        """The groups with members that wait."""
        ...


class GroupMetrics:
    """Reads `groups` when scraped; outcomes are counted as they come."""

    def __init__(self, groups: CountedGroups) -> None:
        self._groups = groups
        self._counts = {"whole": 0, "partial": 0}
        self._seconds = Histogram(
            f"{_PREFIX}group_placing_duration_seconds",
            "Time from when the last member of a group was there until all of them were bound. A "
            "rise means that groups find no room; where there is room, that binds come late: see "
            "the scheduler's qps.",
            buckets=_SECONDS,
            registry=None,
        )

    def observe(self, outcome: GroupOutcome, seconds: float | None) -> None:
        """Count an outcome, `seconds` after the group was complete."""
        self._counts["whole" if outcome.is_whole else "partial"] += 1
        if outcome.is_whole and seconds is not None:
            self._seconds.observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        statuses = list(self._groups.statuses())
        yield GaugeMetricFamily(
            f"{_PREFIX}waiting_groups",
            "Groups with a size of which members have no node. The extender of each kube-scheduler "
            "counts them: take the max.",
            len(statuses),
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}waiting_members",
            "Members of those groups that have no node; none holds a GPU meanwhile, unless its "
            "group has a place.",
            sum(len(one.members) for one in statuses),
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}held_binds",
            "Bind calls that wait for those of the other members of their group, up to the "
            "scheduler's httpTimeout. A number that stays means that a member is not offered its "
            "node.",
            self._groups.n_held,
        )
        placed = CounterMetricFamily(
            f"{_PREFIX}groups",
            "Groups whose Bindings were written, by whether all members were bound (whole) or not "
            "(partial): the API server refused some, or a member was deleted in that moment. Not a "
            "group whose extender died between two Bindings.",
            labels=["outcome"],
        )
        for outcome, count in self._counts.items():
            placed.add_metric([outcome], count)
        yield placed
        yield CounterMetricFamily(
            f"{_PREFIX}group_replans",
            "Members of a group that were planned again before anything was bound, since "
            "kube-scheduler did not offer them their node, or its GPUs were gone. A rise means "
            "that CPU, memory or taints exclude nodes that have GPUs free.",
            self._groups.n_replans,
        )
        yield from self._seconds.collect()
