"""The JSON that kube-scheduler and the extender exchange, and its pod as one checked value.

Knows the wire; knows no cluster and decides nothing.
"""

from extender.protocol.answers import Answer, Outcome, Verb, failure
from extender.protocol.messages import RawBody, WirePod, decode
from extender.protocol.node_affinity import read_node_affinity
from extender.protocol.pod_group import (
    GROUP_KINDS,
    GROUP_MARKS,
    has_group,
    inferred_group,
)
from extender.protocol.pod_request import (
    PodRequest,
    Shape,
    is_packed,
    parse_pod,
    read_request,
)
from extender.protocol.reasons import MAY_PASS, TAKEN, Outlook, Reason
from extender.protocol.responses import reason_tail, score_head, score_tail
from extender.protocol.tolerations import read_tolerations

__all__ = [
    "GROUP_KINDS",
    "GROUP_MARKS",
    "MAY_PASS",
    "TAKEN",
    "Answer",
    "Outcome",
    "Outlook",
    "PodRequest",
    "RawBody",
    "Reason",
    "Shape",
    "Verb",
    "WirePod",
    "decode",
    "failure",
    "has_group",
    "inferred_group",
    "is_packed",
    "parse_pod",
    "read_node_affinity",
    "read_request",
    "read_tolerations",
    "reason_tail",
    "score_head",
    "score_tail",
]
