"""What a cluster shows: its nodes and pods as values, who has which GPUs, where a pod may run.

Reads parsed JSON and texts of annotations; knows no bandwidth.
"""

from topology.audit.cluster.constraints import (
    LabelRequirement,
    NodeRules,
    Taint,
    Toleration,
    allows,
)
from topology.audit.cluster.holdings import (
    HeldSet,
    NodeHoldings,
    Unjudged,
    UnjudgedReason,
    described_resource,
    hold_node,
)
from topology.audit.cluster.objects import (
    AuditCluster,
    AuditContainer,
    AuditNode,
    AuditPod,
    ReportedIds,
    is_gpu_resource,
    read_cluster,
)

__all__ = [
    "AuditCluster",
    "AuditContainer",
    "AuditNode",
    "AuditPod",
    "HeldSet",
    "LabelRequirement",
    "NodeHoldings",
    "NodeRules",
    "ReportedIds",
    "Taint",
    "Toleration",
    "Unjudged",
    "UnjudgedReason",
    "allows",
    "described_resource",
    "hold_node",
    "is_gpu_resource",
    "read_cluster",
]
