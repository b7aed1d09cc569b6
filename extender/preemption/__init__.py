"""Preempt: whose eviction gives a pod its set of GPUs.

Every step is a value; knows no client and no clock.
"""

from extender.preemption.node_pods import NodeReading, read_resident, room_of
from extender.preemption.state_machine import NodesRead, Preemptions, ReadNodes

__all__ = ["NodeReading", "NodesRead", "Preemptions", "ReadNodes", "read_resident", "room_of"]
