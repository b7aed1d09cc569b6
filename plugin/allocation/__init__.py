"""Whose container the kubelet asks for, and which devices it gets.

Decides from values; knows no gRPC and no vendor library.
"""

from plugin.allocation.node_state import NodeBooks, SharingRules
from plugin.allocation.pod_matching import Ambiguous, Ask, Identified, Identity, Nobody, identify
from plugin.allocation.preferred_allocation import Chosen, Refusal, choose

__all__ = [
    "Ambiguous",
    "Ask",
    "Chosen",
    "Identified",
    "Identity",
    "Nobody",
    "NodeBooks",
    "Refusal",
    "SharingRules",
    "choose",
    "identify",
]
