"""Where the members of a group go: nodes near each other, and the devices of each member.

Chooses from one snapshot of the cluster; claims nothing, and knows no member that it is not given.
"""

from extender.groups.planning.gpu_models import excludes, have_models, held_models, is_mixable
from extender.groups.planning.joint_plan import JointPlanner, seen_by_all
from extender.groups.planning.offered_nodes import OfferedNodes
from extender.groups.planning.outcome import JointPlan, Near, NoPlace
from extender.groups.planning.surroundings import common_domain, inside_level, surroundings

__all__ = [
    "JointPlan",
    "JointPlanner",
    "Near",
    "NoPlace",
    "OfferedNodes",
    "common_domain",
    "excludes",
    "have_models",
    "held_models",
    "inside_level",
    "is_mixable",
    "seen_by_all",
    "surroundings",
]
