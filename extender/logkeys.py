"""The names in the log: events and keys, once.

What it answers: how an event and its fields are called, so that a query written against one version
of the log still works with the next.
"""

from __future__ import annotations

__all__ = [
    "ANSWERED",
    "DECISION_LOG_ENDED",
    "DETAIL",
    "EFFECTIVE_SETTINGS",
    "GENERATION",
    "MILLISECONDS",
    "NODE",
    "N_NAMED",
    "N_NODES",
    "OUTCOME",
    "PLACED_GBYTES_PER_S",
    "POD",
    "POD_UID",
    "READY",
    "REASON",
    "STOPPED",
    "VERB",
    "WARNINGS",
]

# Events.
EFFECTIVE_SETTINGS = "effective_settings"
READY = "ready"
STOPPED = "stopped"
ANSWERED = "answered"
DECISION_LOG_ENDED = "decision_log_ended"

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
MILLISECONDS = "ms"
PLACED_GBYTES_PER_S = "placed_gbytes_per_s"
WARNINGS = "warnings"
