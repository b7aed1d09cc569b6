"""What if: pods placed, nodes drained or added, over the state at one moment.

Values in, values out: it changes no state, and has no clock and no I/O.
"""

from extender.what_if.added import add_nodes, find_kind, kinds_by_name, recorded_kind
from extender.what_if.evicted import evicted_pods
from extender.what_if.group import GroupPlace, RequestedGroup, gather_groups
from extender.what_if.rating_turns import rate_in_turns
from extender.what_if.request import RequestedPod, name_pods, read_pods
from extender.what_if.simulation import RefusedNodes, SimulatedGroup, SimulatedPlacement, Simulation

__all__ = [
    "GroupPlace",
    "RefusedNodes",
    "RequestedGroup",
    "RequestedPod",
    "SimulatedGroup",
    "SimulatedPlacement",
    "Simulation",
    "add_nodes",
    "evicted_pods",
    "find_kind",
    "gather_groups",
    "kinds_by_name",
    "name_pods",
    "rate_in_turns",
    "read_pods",
    "recorded_kind",
]
