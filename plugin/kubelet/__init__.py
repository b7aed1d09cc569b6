"""Reads pods, their devices and the Topology Manager's settings from the kubelet.

Reads only; chooses no device.
"""

from plugin.kubelet.admission_gate import AdmissionGate
from plugin.kubelet.pod_resources import PodResources
from plugin.kubelet.topology_manager import (
    PollerTiming,
    TopologyManagerPoller,
    TopologyManagerSource,
)
from plugin.kubelet.view import KubeletRead, KubeletSnapshot, KubeletView, StillHeld

__all__ = [
    "AdmissionGate",
    "KubeletRead",
    "KubeletSnapshot",
    "KubeletView",
    "PodResources",
    "PollerTiming",
    "StillHeld",
    "TopologyManagerPoller",
    "TopologyManagerSource",
]
