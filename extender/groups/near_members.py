"""Where the other members of a group are, or were, and what its members have shown of nodes.

What a plan for some of them starts from. It chooses nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extender.groups.planning import Near

if TYPE_CHECKING:
    from extender.groups.members.bound_members import BoundMembers
    from extender.groups.members.group import Group, GroupKey

__all__ = ["near_bound_members", "near_members"]


def near_bound_members(key: GroupKey, bound: BoundMembers) -> Near:
    """Those that are bound, and those that ended lately."""
    return Near(bound.nodes(key), bound.former_nodes(key), former_by_rank=bound.former_by_rank(key))


def near_members(group: Group, bound: BoundMembers) -> Near:
    """Those that are bound or have a claim, and those that ended lately."""
    near = near_bound_members(group.key, bound)
    claimed = [one.plan.node for one in group.members.values() if one.plan is not None]
    return replace(
        near, nodes=(*near.nodes, *claimed), avoided=group.avoided.keys(), most=group.most
    )
