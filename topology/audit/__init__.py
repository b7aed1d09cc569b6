"""What a running cluster loses today, from lists of its nodes and pods; what one machine gains.

Changes nothing and reads no file; what is not known is named, never guessed.
"""

from topology.audit.cluster import AuditCluster, read_cluster
from topology.audit.compute import audit
from topology.audit.figures import NvidiaNode, nvidia_pair_scores
from topology.audit.gain import GainReport, SizeGain, list_gain, report_gain
from topology.audit.listing import WIDTH, list_audit
from topology.audit.values import AuditReport

__all__ = [
    "WIDTH",
    "AuditCluster",
    "AuditReport",
    "GainReport",
    "NvidiaNode",
    "SizeGain",
    "audit",
    "list_audit",
    "list_gain",
    "nvidia_pair_scores",
    "read_cluster",
    "report_gain",
]
