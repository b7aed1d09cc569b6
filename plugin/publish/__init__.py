"""Writes the annotations of our own Node, only when they change, and Events about it.

Knows the Node's annotations; decides nothing about devices.
"""

from plugin.publish.access_check import (
    AccessCheck,
    AccessChecked,
    AccessEvent,
    EventApi,
    EventFailed,
)
from plugin.publish.node_annotator import (
    AnnotationApi,
    NodeWritten,
    Publisher,
    WriteEvent,
    WriteFailure,
    WriteFailureReason,
    WriteTiming,
)
from plugin.publish.report_loop import (
    PlanMismatches,
    ReportEvent,
    ReportLoop,
    ReportRejected,
    ReportTiming,
)

__all__ = [
    "AccessCheck",
    "AccessChecked",
    "AccessEvent",
    "AnnotationApi",
    "EventApi",
    "EventFailed",
    "NodeWritten",
    "PlanMismatches",
    "Publisher",
    "ReportEvent",
    "ReportLoop",
    "ReportRejected",
    "ReportTiming",
    "WriteEvent",
    "WriteFailure",
    "WriteFailureReason",
    "WriteTiming",
]
