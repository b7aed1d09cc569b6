"""The names of the events in the extender's log, so that queries keep working with later versions.

docs/operations.md explains each.
"""

from __future__ import annotations

__all__ = [
    "ANNOTATION_FAILED",
    "ANSWERED",
    "CERTIFICATES_CHANGED",
    "CERTIFICATES_UNUSABLE",
    "DECISION_LOG_ENDED",
    "DISCREPANCY",
    "EFFECTIVE_SETTINGS",
    "EVENT_FAILED",
    "FATAL",
    "LISTENING",
    "OBJECT_UNREADABLE",
    "READY",
    "READ_API_FAILED",
    "REQUEUED",
    "REQUEUE_FAILED",
    "STOPPED",
    "WATCH_ERROR",
    "WATCH_LISTED",
]

EFFECTIVE_SETTINGS = "effective_settings"
LISTENING = "listening"
READY = "ready"
READ_API_FAILED = "read_api_failed"
STOPPED = "stopped"
FATAL = "fatal"
ANSWERED = "answered"
DECISION_LOG_ENDED = "decision_log_ended"
WATCH_LISTED = "watch_listed"
WATCH_ERROR = "watch_error"
OBJECT_UNREADABLE = "object_unreadable"
DISCREPANCY = "discrepancy"
REQUEUED = "requeued"
REQUEUE_FAILED = "requeue_failed"
EVENT_FAILED = "event_failed"
ANNOTATION_FAILED = "annotation_failed"
CERTIFICATES_CHANGED = "certificates_changed"
CERTIFICATES_UNUSABLE = "certificates_unusable"
