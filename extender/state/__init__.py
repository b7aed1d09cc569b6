"""What is known of nodes and pods, and the accounts and snapshots made of it.

Facts and binds go in, immutable snapshots come out; knows no API server, no clock and no HTTP.
"""

from extender.state.cluster_state import LiveCluster
from extender.state.device_states import DeviceState
from extender.state.effects import (
    Agreement,
    Effect,
    Mismatch,
    Missing,
    NodeProblem,
    PlanConflict,
    Probe,
)
from extender.state.machine_types import Kinds, build_machine_type
from extender.state.node_record import NodeRecord, NodeResource
from extender.state.pod_record import BoundPod

__all__ = [
    "Agreement",
    "BoundPod",
    "DeviceState",
    "Effect",
    "Kinds",
    "LiveCluster",
    "Mismatch",
    "Missing",
    "NodeProblem",
    "NodeRecord",
    "NodeResource",
    "PlanConflict",
    "Probe",
    "build_machine_type",
]
