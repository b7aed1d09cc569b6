"""What is known of nodes and pods, and the accounts and snapshots made of it.

Facts and binds go in, immutable snapshots come out; knows no API server, no clock and no HTTP.
"""

from extender.state.accounting import Account, AssignmentState
from extender.state.cluster_state import LiveCluster
from extender.state.debug_json import ManagerBody, NodesState
from extender.state.device_states import DeviceRow, DeviceState
from extender.state.domains import NodeDomains, domain_labels
from extender.state.effects import (
    Agreement,
    Effect,
    Mismatch,
    Missing,
    NodeProblem,
    PlanConflict,
    Probe,
)
from extender.state.machine_types import NodeClasses, build_machine_type
from extender.state.moment import StateMoment
from extender.state.node_labels import HOSTNAME, KEPT_LABELS, PRODUCT, ZONE
from extender.state.node_record import BY_COUNT, NodeRecord, NodeResource, mask_of
from extender.state.pod_record import BoundPod, PodRecord

__all__ = [
    "BY_COUNT",
    "HOSTNAME",
    "KEPT_LABELS",
    "PRODUCT",
    "ZONE",
    "Account",
    "Agreement",
    "AssignmentState",
    "BoundPod",
    "DeviceRow",
    "DeviceState",
    "Effect",
    "LiveCluster",
    "ManagerBody",
    "Mismatch",
    "Missing",
    "NodeClasses",
    "NodeDomains",
    "NodeProblem",
    "NodeRecord",
    "NodeResource",
    "NodesState",
    "PlanConflict",
    "PodRecord",
    "Probe",
    "StateMoment",
    "build_machine_type",
    "domain_labels",
    "mask_of",
]
