"""Which domains have the least free capacity left, counting those around them.

What it answers: the order in which domains are filled, so that whole ones stay free for groups. Of
two domains the one with less room comes first; where they have the same, the one whose next domain
has less, and so on. A node without a level stands in the next one that it has, and comes after the
nodes of every domain below it that has less room. Zones and regions count for groups alone: other
pods are not kept together in them, and a node in no domain of the network comes last.

It never says whether a pod fits: room is a figure of every node, whatever its unit.
O(nodes + domains log domains), in array operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.groups.domain_tree import DomainTree

__all__ = ["order_by_free_capacity", "places_by_free_capacity"]


def order_by_free_capacity(
    tree: DomainTree, sums: NDArray[np.int64], domains: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """Keys for `numpy.lexsort`: least room in the domain, then in those around it."""
    return [sums[column] for column in tree.chains[domains].T[::-1]]


def places_by_free_capacity(tree: DomainTree, room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each node the place of its nearest network domain: 0 for the least room, equal for equal.

    `room` is a figure of each node, by position in the tree.
    """
    sums = np.where(tree.is_network, tree.sums(room), np.iinfo(np.int64).max)
    keys = np.array(order_by_free_capacity(tree, sums, np.arange(len(tree.domains))))
    order = np.lexsort(keys)
    ordered = keys[:, order]
    is_other = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    places = np.zeros(len(order), dtype=np.int64)
    places[order[1:]] = is_other.cumsum()
    nearest: NDArray[np.int64] = places[tree.owner]
    return nearest
