"""To which GPUs the kubelet's Topology Manager confines a pod.

Knows the kubelet's rules; knows no API.
"""

from topology.topology_manager.admission import Kubelet, fit_admitted
from topology.topology_manager.hints import TopologyManager, manager_of

__all__ = ["Kubelet", "TopologyManager", "fit_admitted", "manager_of"]
