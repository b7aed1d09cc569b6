"""The pods of this node as values: their containers, plans, and who holds which devices.

Knows no kubelet connection and chooses no device.
"""

from plugin.pods.admission_order import Turn, next_turn, reserved_ids, turns_again
from plugin.pods.checkpoint import as_holdings, read_checkpoint
from plugin.pods.holdings import (
    Holding,
    HoldingBook,
    Mismatch,
    MismatchKind,
    Occupancy,
    device_report,
    is_over,
    mismatches,
)
from plugin.pods.node_pods import NodePod, PodContainer, read_node_pods
from plugin.pods.plans import planned_ids

__all__ = [
    "Holding",
    "HoldingBook",
    "Mismatch",
    "MismatchKind",
    "NodePod",
    "Occupancy",
    "PodContainer",
    "Turn",
    "as_holdings",
    "device_report",
    "is_over",
    "mismatches",
    "next_turn",
    "planned_ids",
    "read_checkpoint",
    "read_node_pods",
    "reserved_ids",
    "turns_again",
]
