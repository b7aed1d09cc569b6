"""What a cluster shows: its nodes and pods as values, who has which GPUs.

Reads parsed JSON and texts of annotations; knows no bandwidth.
"""

from topology.audit.cluster.counts import is_gpu_resource
from topology.audit.cluster.holdings import (
    HeldSet,
    NodeHoldings,
    Unjudged,
    hold_node,
)
from topology.audit.cluster.objects import (
    AuditClaimant,
    AuditCluster,
    AuditContainer,
    AuditNode,
    AuditPod,
    ReportedIds,
    read_cluster,
)
from topology.audit.cluster.offer import OfferedGpus, described_resource, offer_of
from topology.audit.cluster.reasons import AuditProblem, ProblemKind, UnjudgedReason

__all__ = [
    "AuditClaimant",
    "AuditCluster",
    "AuditContainer",
    "AuditNode",
    "AuditPod",
    "AuditProblem",
    "HeldSet",
    "NodeHoldings",
    "OfferedGpus",
    "ProblemKind",
    "ReportedIds",
    "Unjudged",
    "UnjudgedReason",
    "described_resource",
    "hold_node",
    "is_gpu_resource",
    "offer_of",
    "read_cluster",
]
