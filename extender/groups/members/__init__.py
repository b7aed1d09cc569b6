"""Who is a member of which group: with a node or without, gone, or without GPUs.

Keeps and counts, and knows how many there must be; chooses no node and claims nothing.
"""

from extender.groups.members.bound_members import BoundMembers
from extender.groups.members.departed import Departed
from extender.groups.members.group import Group, GroupKey, Member, Stage
from extender.groups.members.member_counts import MemberCounts
from extender.groups.members.waiting_members import WaitingMembers
from extender.groups.members.without_gpus import WithoutGpus

__all__ = [
    "BoundMembers",
    "Departed",
    "Group",
    "GroupKey",
    "Member",
    "MemberCounts",
    "Stage",
    "WaitingMembers",
    "WithoutGpus",
]
