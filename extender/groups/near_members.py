"""Where the other members of a group are, or were, and what its members have shown of nodes.

What a plan for some of them starts from. It chooses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.groups.planning import Near

if TYPE_CHECKING:
    from extender.groups.members.bound_members import BoundMembers
    from extender.groups.members.group import Group

__all__ = ["near_members"]


def near_members(group: Group, bound: BoundMembers) -> Near:
    """Those that are bound or have a claim, and those that ended lately."""
    claimed = [one.plan.node for one in group.members.values() if one.plan is not None]
    return Near(
        (*bound.nodes(group.key), *claimed),
        bound.former_nodes(group.key),
        group.avoided.keys(),
        group.most,
        former_by_rank=bound.former_by_rank(group.key),
    )
