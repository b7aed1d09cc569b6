"""What is known of nodes and pods, and the accounts and snapshots made of it.

A function of facts; knows no API server, no clock and no request.
"""

from extender.state.cluster_state import LiveCluster
from extender.state.effects import (
    Agreement,
    Conflict,
    Effect,
    Mismatch,
    Missing,
    NodeProblem,
    Probe,
)
from extender.state.interface import BoundPod, Cluster
from extender.state.ledger import Applied, Ledger, Refused
from extender.state.machine_types import Kinds, build_machine_type
from extender.state.transitions import DeviceState

__all__ = [
    "Agreement",
    "Applied",
    "BoundPod",
    "Cluster",
    "Conflict",
    "DeviceState",
    "Effect",
    "Kinds",
    "Ledger",
    "LiveCluster",
    "Mismatch",
    "Missing",
    "NodeProblem",
    "Probe",
    "Refused",
    "build_machine_type",
]
