"""What the kubelet says of its pods, their devices and its Topology Manager.

Reads the kubelet; chooses no device.
"""

from plugin.kubelet.admission_gate import AdmissionGate
from plugin.kubelet.pod_resources import PodResources
from plugin.kubelet.topology_manager import AlignmentInquiry, TopologyManagerSource
from plugin.kubelet.view import KubeletView, Look

__all__ = [
    "AdmissionGate",
    "AlignmentInquiry",
    "KubeletView",
    "Look",
    "PodResources",
    "TopologyManagerSource",
]
