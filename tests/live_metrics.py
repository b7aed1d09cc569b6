"""The metrics of a live extender, whatever its parts counted."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from extender.observe import GroupMetrics, LiveMetrics

__all__ = ["idle_metrics"]


def idle_metrics() -> LiveMetrics:
    """Of an extender whose parts have done nothing yet."""
    counts = SimpleNamespace(n_lists=0, n_events=0, n_faults=0, n_unread=0)
    idle: Any = SimpleNamespace(
        n_read=0,
        n_failed=0,
        n_open=0,
        n_refused=0,
        n_requeued=0,
        n_skipped=0,
        n_written=0,
        n_dropped=0,
        n_faults=0,
        n_held=0,
        n_replans=0,
        statuses=list,
        watches=[SimpleNamespace(name="nodes", observed_at_s=0.0, counts=counts)],
        beside=[],
        by_kind=defaultdict(int),
    )

    def clock() -> float:
        return 0.0

    groups = GroupMetrics(idle)
    return LiveMetrics(idle, idle, idle, idle, idle, idle, clock, clock, dict, groups)
