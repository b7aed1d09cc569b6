"""Writes the annotations of our own Node, and only when they change.

Knows the Node's annotations; decides nothing about devices.
"""

from plugin.publish.node_annotator import (
    AnnotationApi,
    NodeWritten,
    Publisher,
    WriteEvent,
    WriteFailure,
    WriteFailureReason,
)
from plugin.publish.report_loop import PlanMismatches, ReportEvent, ReportLoop, ReportRejected

__all__ = [
    "AnnotationApi",
    "NodeWritten",
    "PlanMismatches",
    "Publisher",
    "ReportEvent",
    "ReportLoop",
    "ReportRejected",
    "WriteEvent",
    "WriteFailure",
    "WriteFailureReason",
]
