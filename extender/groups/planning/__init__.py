"""Where the members of a group go: nodes near each other, and the devices of each member.

Chooses from one snapshot of the cluster; claims nothing, and knows no member that it is not given.
"""

from extender.groups.planning.joint_plan import (
    JointPlan,
    JointPlanner,
    Near,
    NoPlace,
    seen_by_all,
)
from extender.groups.planning.offered_nodes import OfferedNodes
from extender.groups.planning.reservable import Reservable, reservable
from extender.groups.planning.surroundings import common_domain, inside_level, surroundings

__all__ = [
    "JointPlan",
    "JointPlanner",
    "Near",
    "NoPlace",
    "OfferedNodes",
    "Reservable",
    "common_domain",
    "inside_level",
    "reservable",
    "seen_by_all",
    "surroundings",
]
