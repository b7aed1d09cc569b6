"""Which domain and which nodes a group gets.

What it answers: for a tree of network domains and how many members each node takes, the nodes of
all members or why there are none. It never chooses GPUs of a node, and what a node takes is an
argument.

A group is placed as a whole, in one domain of the lowest level that holds it, with even shares:
`topology.groups.choice_alike` and `choice_mixed` have the method and its bounds. A node that lacks
a level shares no domain of it with any other, and never satisfies a required level: not even alone.

The same input gives the same nodes; every order ends with the position in the tree, which follows
from the names of domains and nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.annotations import ANY_DOMAIN
from topology.errors import InvalidRequest
from topology.groups.choice_alike import choose_alike
from topology.groups.choice_mixed import MixedDemand, choose_mixed, most_members
from topology.groups.choice_outcome import (
    NODE_LEVEL,
    Assigned,
    NodeShare,
    NoRoom,
    NoRoomReason,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.groups.choice_outcome import Counts, GroupDemand
    from topology.groups.domain_tree import Domain, DomainLevel, DomainTree

__all__ = ["choose_nodes"]


def choose_nodes(tree: DomainTree, demand: GroupDemand) -> Assigned | NoRoom:
    """Choose the nodes of a group, all members or none.

    Raises `InvalidRequest` where a sequence of the demand has not one figure for each node, and
    where `within` is no level of the tree's families.
    """
    index = tree.level_index(demand.within)
    n_members = demand.n_members
    if index is None:
        return NoRoom(NoRoomReason.UNKNOWN, demand.within, "", 0, n_members)
    level = tree.levels[index]
    now = _figures(tree, demand, level, is_empty=False)
    found = _choose(tree, now, n_levels=index + 1)
    if found is not None:
        return _assigned(tree, found)
    if _has_figures_when_empty(demand):
        empty = _figures(tree, demand, level, is_empty=True)
        if _choose(tree, empty, n_levels=index + 1) is None:
            domain, n_room = _roomiest(tree, level, empty)
            return NoRoom(NoRoomReason.NEVER, level.name, domain.name, n_room, n_members)
    domain, n_room = _roomiest(tree, level, now)
    return NoRoom(NoRoomReason.NOT_NOW, level.name, domain.name, n_room, n_members)


def _has_figures_when_empty(demand: GroupDemand) -> bool:
    if len(demand.shapes) > 1 and demand.gpus is None:
        return False
    return all(shape.fits_when_empty is not None for shape in demand.shapes)


def _figures(
    tree: DomainTree, demand: GroupDemand, level: DomainLevel, *, is_empty: bool
) -> MixedDemand:
    """The demand as arrays; nodes that lack the required level take nothing."""
    n_nodes = len(tree.node_names)
    is_able = np.ones(n_nodes, dtype=bool)
    if level.name != ANY_DOMAIN:
        is_able[:] = False
        is_able[level.positions] = True
    fits: list[NDArray[np.int64]] = []
    for shape in demand.shapes:
        room = shape.fits_when_empty if is_empty else shape.fits
        fits.append(np.where(is_able, _array(room, n_nodes, "fits"), 0))
    gpus = demand.gpus if is_empty else demand.free_gpus
    costs = np.zeros(n_nodes) if demand.costs is None else np.asarray(demand.costs, dtype=float)
    return MixedDemand(
        n_members=[shape.n_members for shape in demand.shapes],
        n_gpus=[shape.n_gpus for shape in demand.shapes],
        fits=fits,
        free_gpus=fits[0] if len(fits) == 1 else _array(gpus, n_nodes, "free_gpus"),
        costs=costs,
    )


def _array(figures: Counts | None, n_nodes: int, name: str) -> NDArray[np.int64]:
    array = np.asarray(() if figures is None else figures, dtype=np.int64)
    if array.shape != (n_nodes,):
        msg = f"{name} has {array.size} figures, expected one for each of {n_nodes} nodes"
        raise InvalidRequest(msg)
    return array


def _choose(
    tree: DomainTree, demand: MixedDemand, *, n_levels: int
) -> tuple[Domain | None, dict[int, list[int]]] | None:
    if len(demand.fits) > 1:
        return choose_mixed(tree, demand, n_levels=n_levels)
    found = choose_alike(
        tree, demand.fits[0], demand.costs, n_members=demand.n_members[0], n_levels=n_levels
    )
    if found is None:
        return None
    domain, shares = found
    return domain, {position: [n] for position, n in shares}


def _assigned(tree: DomainTree, found: tuple[Domain | None, dict[int, list[int]]]) -> Assigned:
    domain, by_position = found
    shares = tuple(
        NodeShare(tree.node_names[position], tuple(by_position[position]))
        for position in sorted(by_position)
    )
    if domain is None:
        return Assigned(NODE_LEVEL, shares[0].node_name, shares)
    return Assigned(domain.level, domain.name, shares)


def _roomiest(tree: DomainTree, level: DomainLevel, demand: MixedDemand) -> tuple[Domain, int]:
    """The domain with the most room, and how many members it takes: the first of equal ones."""
    figures = demand.free_gpus
    domain = tree.domains[level.domains[int(np.argmax(tree.sums(figures)[list(level.domains)]))]]
    if len(demand.fits) > 1:
        return domain, most_members(demand, domain)
    return domain, int(figures[domain.first : domain.end].sum())
