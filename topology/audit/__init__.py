"""What a running cluster loses today, from lists of its nodes and pods; whoever scheduled them.

`read_cluster` reads the lists, `audit` makes the report, `list_audit` lays it out.
Changes nothing and reads no file; what is not known is named, never guessed.
"""

from topology.audit.cluster import AuditCluster, read_cluster
from topology.audit.compute import audit
from topology.audit.figures import NvidiaNode, nvidia_pair_scores
from topology.audit.listing import WIDTH, list_audit
from topology.audit.values import AuditReport

__all__ = [
    "WIDTH",
    "AuditCluster",
    "AuditReport",
    "NvidiaNode",
    "audit",
    "list_audit",
    "nvidia_pair_scores",
    "read_cluster",
]
