"""The names in the log: events and keys, once.

What it answers: how an event and its fields are called, so that a query written against one version
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
    "EFFECTIVE_SETTINGS",
    "EVENT_FAILED",
    "GENERATION",
    "HOLDER",
    "LEASE_FAULT",
    "LEASE_LOST",
    "LEASE_TAKEN",
    "LISTENING",
    "MILLISECONDS",
    "NODE",
    "N_NAMED",
    "N_NODES",
    "N_OBJECTS",
    "N_REFUSED",
    "N_REPLANS",
    "OBJECT",
    "OBJECT_UNREAD",
    "OUTCOME",
    "OWN_MILLISECONDS",
    "PLACED_GBYTES_PER_S",
    "POD",
    "POD_UID",
    "READY",
    "REASON",
    "SOURCE",
    "STATE_TOLD",
    "STOPPED",
    "VERB",
    "WAKE_FAILED",
    "WARNINGS",
    "WATCH_FAULT",
    "WATCH_LISTED",
    "WILL_LIST",
    "WOKEN",
]

# Events.
EFFECTIVE_SETTINGS = "effective_settings"
LISTENING = "listening"
READY = "ready"
STOPPED = "stopped"
ANSWERED = "answered"
DECISION_LOG_ENDED = "decision_log_ended"
WATCH_LISTED = "watch_listed"
WATCH_FAULT = "watch_fault"
OBJECT_UNREAD = "object_unread"
STATE_TOLD = "state_told"
WOKEN = "woken"
WAKE_FAILED = "wake_failed"
EVENT_FAILED = "event_failed"
ANNOTATION_FAILED = "annotation_failed"
LEASE_TAKEN = "lease_taken"
LEASE_LOST = "lease_lost"
LEASE_FAULT = "lease_fault"
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
