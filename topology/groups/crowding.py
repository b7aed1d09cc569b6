"""How crowded the domains of nodes are: which has the least room left, counting those around it.

What it answers: the order in which domains are filled, so that whole ones stay free for groups. Of
two domains the one with less room comes first; where they have the same, the one whose next domain
has less, and so on up to the whole cluster. A node without a level stands in the next one that it
has, and comes after the nodes of every domain below it that has less room.

It never says whether a pod fits: room is a figure of every node, whatever its unit.
O(nodes + domains log domains), in array operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.groups.domain_tree import DomainTree

__all__ = ["crowding_of_nodes", "order_of_crowding"]


def order_of_crowding(
    tree: DomainTree, sums: NDArray[np.int64], domains: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Keys for `numpy.lexsort`: least room in the domain, then in those around it."""
    return [sums[column] for column in tree.chains[domains].T[::-1]]


def crowding_of_nodes(tree: DomainTree, room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each node the place of its nearest domain: 0 for the least room, equal for equal ones.

    `room` is a figure of each node, by position in the tree.
    """
    keys = np.array(order_of_crowding(tree, tree.sums(room), np.arange(len(tree.domains))))
    order = np.lexsort(keys)
    ordered = keys[:, order]
    is_other = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    places = np.zeros(len(order), dtype=np.int64)
    places[order[1:]] = is_other.cumsum()
    nearest: NDArray[np.int64] = places[tree.owner]
    return nearest
