"""The names in the log: events and keys, once.

They are fixed, so that a query written against one version
of the log still works with the next.
"""

from __future__ import annotations

__all__ = [
    "ANNOTATION_FAILED",
    "ANSWERED",
    "CERTIFICATES_CHANGED",
    "CERTIFICATES_UNUSABLE",
    "DECISION_LOG_ENDED",
    "DELAY_S",
    "DETAIL",
    "DISCREPANCY",
    "EFFECTIVE_SETTINGS",
    "EVENT_FAILED",
    "GENERATION",
    "HOLDER",
    "LEASE_ACQUIRED",
    "LEASE_ERROR",
    "LEASE_LOST",
    "LISTENING",
    "MILLISECONDS",
    "NODE",
    "N_NAMED",
    "N_NODES",
    "N_OBJECTS",
    "N_REFUSED",
    "N_REPLANS",
    "OBJECT",
    "OBJECT_UNREADABLE",
    "OUTCOME",
    "OWN_MILLISECONDS",
    "PLACED_GBYTES_PER_S",
    "POD",
    "POD_UID",
    "READY",
    "REASON",
    "REQUEUED",
    "REQUEUE_FAILED",
    "SOURCE",
    "STOPPED",
    "VERB",
    "WARNINGS",
    "WATCH_ERROR",
    "WATCH_LISTED",
    "WILL_LIST",
]

# Events.
EFFECTIVE_SETTINGS = "effective_settings"
LISTENING = "listening"
READY = "ready"
STOPPED = "stopped"
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
LEASE_ACQUIRED = "lease_acquired"
LEASE_LOST = "lease_lost"
LEASE_ERROR = "lease_error"
CERTIFICATES_CHANGED = "certificates_changed"
CERTIFICATES_UNUSABLE = "certificates_unusable"

# Keys.
VERB = "verb"
OUTCOME = "outcome"
REASON = "reason"
DETAIL = "detail"
POD = "pod"
POD_UID = "pod_uid"
NODE = "node"
GENERATION = "generation"
N_NODES = "n_nodes"
N_NAMED = "n_named"
N_OBJECTS = "n_objects"
N_REFUSED = "n_refused"
N_REPLANS = "n_replans"
MILLISECONDS = "ms"
OWN_MILLISECONDS = "own_ms"
PLACED_GBYTES_PER_S = "placed_gbytes_per_s"
WARNINGS = "warnings"
SOURCE = "source"
OBJECT = "object"
DELAY_S = "delay_s"
WILL_LIST = "will_list"
HOLDER = "holder"
