"""Pods of groups: placed together or not at all, near each other.

Decides from the state and from what filter was called with; reads no clock and writes nothing.
"""

from extender.groups.bandwidth import GroupFigures, falls_short, predict, value_json
from extender.groups.groups import Groups
from extender.groups.members.group import GroupKey, difference
from extender.groups.near_bound import NearBound
from extender.groups.planning import OfferedNodes
from extender.groups.pod_group_cycle import PodGroups
from extender.groups.readings import GroupOutcome, GroupReadings, GroupStatus, MemberStatus

__all__ = [
    "GroupFigures",
    "GroupKey",
    "GroupOutcome",
    "GroupReadings",
    "GroupStatus",
    "Groups",
    "MemberStatus",
    "NearBound",
    "OfferedNodes",
    "PodGroups",
    "difference",
    "falls_short",
    "predict",
    "value_json",
]
