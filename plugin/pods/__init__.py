"""The pods of this node as values: their containers, plans, and held devices.

Knows no kubelet connection and chooses no device.
"""

from plugin.pods.admission_order import (
    HeldDevices,
    HoldingsByPod,
    PendingContainer,
    next_pending,
    pending_restarts,
    reserved_ids,
)
from plugin.pods.checkpoint import (
    CheckpointEntry,
    as_holdings,
    match_holdings,
    read_checkpoint,
)
from plugin.pods.holdings import MismatchKind, PlanMismatch, device_report, mismatches
from plugin.pods.node_pods import (
    NodePod,
    PodContainer,
    planned_ids,
    read_node_pods,
    unlisted_pod,
)

__all__ = [
    "CheckpointEntry",
    "HeldDevices",
    "HoldingsByPod",
    "MismatchKind",
    "NodePod",
    "PendingContainer",
    "PlanMismatch",
    "PodContainer",
    "as_holdings",
    "device_report",
    "match_holdings",
    "mismatches",
    "next_pending",
    "pending_restarts",
    "planned_ids",
    "read_checkpoint",
    "read_node_pods",
    "reserved_ids",
    "unlisted_pod",
]
