"""Finds the container that a kubelet's call is for, and chooses its devices.

Decides from values; knows no gRPC and no vendor library.
"""

from plugin.allocation.node_state import NodeState
from plugin.allocation.pod_matching import (
    AdmissionView,
    Ambiguous,
    DeviceRequest,
    Identified,
    Requester,
    UnknownRequester,
    identify,
)
from plugin.allocation.preferred_allocation import (
    Allocation,
    AllocationBasis,
    AllocationRefusal,
    choose_devices,
)

__all__ = [
    "AdmissionView",
    "Allocation",
    "AllocationBasis",
    "AllocationRefusal",
    "Ambiguous",
    "DeviceRequest",
    "Identified",
    "NodeState",
    "Requester",
    "UnknownRequester",
    "choose_devices",
    "identify",
]
