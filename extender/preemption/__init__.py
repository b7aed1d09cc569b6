"""Preempt: whose eviction gives a pod its set of GPUs.

Every step is a value; knows no client and no clock.
"""

from extender.preemption.node_pods import NodeReading, capacity_of, read_pod_on_node
from extender.preemption.state_machine import NodesRead, Preemptions, ReadNodes

__all__ = [
    "NodeReading",
    "NodesRead",
    "Preemptions",
    "ReadNodes",
    "capacity_of",
    "read_pod_on_node",
]
