"""Prometheus metrics, and Events for users.

Only observes: nothing that decides or serves depends on what is recorded here.
"""

from extender.observe.event_recorder import Reporter
from extender.observe.events import Note, notes_of_answer, notes_of_effect
from extender.observe.group_events import GroupReports
from extender.observe.group_metrics import GroupMetrics
from extender.observe.live_metrics import EffectCounts, LiveMetrics
from extender.observe.metrics import ExtenderMetrics

__all__ = [
    "EffectCounts",
    "ExtenderMetrics",
    "GroupMetrics",
    "GroupReports",
    "LiveMetrics",
    "Note",
    "Reporter",
    "notes_of_answer",
    "notes_of_effect",
]
