"""Which nodes pods without a group take first, so that whole domains stay free for groups.

What it answers: of each node of a snapshot, the place of its nearest network domain by the room
that is left there, 0 for the least (`topology.groups.places_by_free_capacity`). It is the last part
of economy (`extender.placement.node_order`): only nodes that are equal up to there differ by it. It
computes nothing where no node has a label of the network, nor for a pod whose nodes economy does
not order: a member of a group, which is placed with the others, or one with soft wishes of its own.

Room is counted in pods of this size, by free GPUs: two nodes with three free ones have none for
four, nor has a node that takes no new pod: else a leaf that is drained would look the emptiest. It
is kept for one snapshot, by size, so that the calls of a pod share it. Nodes that no tree knows
come last. O(nodes), in array operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from topology.groups import places_by_free_capacity

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeIndex
    from topology.groups import DomainTree

__all__ = ["DomainFreeCapacity"]


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """The nodes that a tree and a node index both have, by their positions there.

    `is_open` is false of those, in that order, that are `closed`.
    """

    tree: DomainTree
    node_index: NodeIndex
    closed: frozenset[str]
    is_open: NDArray[np.bool_]
    in_tree: NDArray[np.int64]
    in_index: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """What was made of one snapshot, by the pods' size."""

    snapshot: ClusterSnapshot
    order: _Order
    by_size: dict[int, NDArray[np.int64]]


class NetworkDomains(Protocol):
    """Where nodes are in the network."""

    @property
    def has_network(self) -> bool:
        """Whether a node is in a domain of NVLink or of the fabric."""
        ...

    @property
    def closed(self) -> frozenset[str]:
        """Nodes that take no new pod."""
        ...

    @property
    def tree(self) -> DomainTree:
        """The tree over all nodes."""
        ...


class DomainFreeCapacity:
    """Keeps what it made of the last snapshot; `domains` gives the domains as they are now."""

    def __init__(self, domains: Callable[[], NetworkDomains]) -> None:
        self._domains = domains
        self._order: _Order | None = None
        self._kept: _Kept | None = None

    def of(self, request: PodRequest, snapshot: ClusterSnapshot) -> NDArray[np.int64] | None:
        """The places for a pod, by position in the node index; None where they do not count."""
        is_member = request.group is not None or bool(request.pod_group)
        if is_member or request.has_soft_wishes or request.shape is None:
            return None
        domains, kept = self._domains(), self._kept
        if not domains.has_network:
            return None
        order = self._order_of(domains, snapshot.node_index)
        if kept is None or kept.snapshot is not snapshot or kept.order is not order:
            kept = self._kept = _Kept(snapshot, order, {})
        size = request.size_gpus
        if size not in kept.by_size:
            kept.by_size[size] = _free_capacity(snapshot, order, size)
        return kept.by_size[size]

    def _order_of(self, domains: NetworkDomains, node_index: NodeIndex) -> _Order:
        order, tree, closed = self._order, domains.tree, domains.closed
        if (
            order is None
            or order.tree is not tree
            or order.node_index is not node_index
            or order.closed != closed
        ):
            positions = node_index.locate(tree.node_names)
            in_tree = (positions >= 0).nonzero()[0]
            is_open = np.array([tree.node_names[i] not in closed for i in in_tree], dtype=bool)
            order = self._order = _Order(
                tree, node_index, closed, is_open, in_tree, positions[in_tree]
            )
        return order


def _free_capacity(snapshot: ClusterSnapshot, order: _Order, size: int) -> NDArray[np.int64]:
    tree = order.tree
    fits = np.array([one.free.bit_count() // size for one in snapshot.samples], dtype=np.int64)
    room = np.zeros(len(tree.node_names), dtype=np.int64)
    room[order.in_tree] = fits[snapshot.state_ids[order.in_index]] * order.is_open
    places = np.full(len(snapshot.views), len(tree.domains), dtype=np.int64)
    places[order.in_index] = places_by_free_capacity(tree, room)[order.in_tree]
    return places
