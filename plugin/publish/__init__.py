"""Writes the annotations of our own Node, and only when they change.

Knows the Node's annotations; decides nothing about devices.
"""

from plugin.publish.node_annotator import (
    AnnotationApi,
    Publisher,
    PublisherTools,
    WriteFailure,
    WriteFailureReason,
)
from plugin.publish.report_loop import ReportLoop

__all__ = [
    "AnnotationApi",
    "Publisher",
    "PublisherTools",
    "ReportLoop",
    "WriteFailure",
    "WriteFailureReason",
]
