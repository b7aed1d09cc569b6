"""Metrics of groups: who waits, and what became of those that were released."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from extender.observe import GroupMetrics
from tests.unit.extender.observe.test_group_events import PLACED, WAITS


def samples(metrics: GroupMetrics) -> dict[str, float]:
    """The samples without the program's prefix, with their labels."""
    found: dict[str, float] = {}
    for family in metrics.collect():
        for one in family.samples:
            labels = ",".join(one.labels.values())
            found[one.name.removeprefix("coterie_extender_") + (f" {labels}" if labels else "")] = (
                one.value
            )
    return found


def groups(**changes: Any) -> Any:
    """Readings of one group that waits."""
    known = {
        "n_held": 2,
        "n_replans": 3,
        "statuses": lambda: iter([WAITS]),
    }
    return SimpleNamespace(**(known | changes))


def test_groups_that_wait_are_counted():
    """With their members, the binds that are held, and what was planned again."""
    found = samples(GroupMetrics(groups()))
    assert (found["waiting_groups"], found["waiting_members"]) == (1.0, 3.0)
    assert (found["held_binds"], found["group_replans_total"]) == (2.0, 3.0)
    assert (found["groups_total whole"], found["groups_total partial"]) == (0.0, 0.0)


def test_outcomes_are_counted_with_the_time_of_whole_ones():
    """A partial group has no time: not all of it was bound."""
    metrics = GroupMetrics(groups())
    metrics.observe(PLACED, 0.5)
    metrics.observe(PLACED, None)
    metrics.observe(replace(PLACED, n_bound=1), 7.0)
    found = samples(metrics)
    assert (found["groups_total whole"], found["groups_total partial"]) == (2.0, 1.0)
    assert found["group_placing_duration_seconds_count"] == 1.0
    assert found["group_placing_duration_seconds_sum"] == 0.5
