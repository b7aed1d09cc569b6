"""What if: pods placed, nodes drained or added, over the state at one moment.

Values in, values out: it changes no state, and has no clock and no I/O.
"""

from extender.what_if.added import add_nodes, find_kind, kinds_by_name, recorded_kind
from extender.what_if.asked import TrialPod, name_pods, read_pods
from extender.what_if.evicted import evicted_pods
from extender.what_if.rating_turns import rate_in_turns
from extender.what_if.trial import RefusedNodes, Trial, Trialled, TrialledGroup
from extender.what_if.trial_group import GroupPlace, TrialGroup, gather_groups

__all__ = [
    "GroupPlace",
    "RefusedNodes",
    "Trial",
    "TrialGroup",
    "TrialPod",
    "Trialled",
    "TrialledGroup",
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
