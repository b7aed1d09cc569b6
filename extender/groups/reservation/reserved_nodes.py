"""Which nodes are reserved for which groups, and whom that keeps out.

A node is reserved against pods whose priority is that of the group or less: a pod that matters more
does not wait for one that matters less. The members of the group itself may go anywhere, pods that
run stay, and claims that there are stand. It chooses no node (`patience` beside it does).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from extender.groups.members.group import GroupKey
    from extender.snapshot import NodeIndex

__all__ = ["Reservation", "ReservedNodes"]


@dataclass(frozen=True, slots=True)
class Reservation:
    """The nodes that a group keeps, since when, and the priority of the group.

    `level` and `domain` are those of the nearest domain with all the nodes, empty without one.
    """

    key: GroupKey
    nodes: frozenset[str]
    level: str
    domain: str
    since_s: float
    priority: int

    @property
    def title(self) -> str:
        """Namespace and name of the group."""
        return "/".join(self.key)

    @property
    def place(self) -> str:
        """The nodes in words."""
        n_nodes = len(self.nodes)
        nodes = f"{n_nodes} node{'s' if n_nodes > 1 else ''}"
        return f"{nodes} of {self.level} {self.domain}" if self.domain else nodes


class ReservedNodes:
    """The reservations of one engine. No node is in two of them."""

    def __init__(self) -> None:
        self._by_key: dict[GroupKey, Reservation] = {}
        self._released: set[str] = set()
        self._node_index: NodeIndex | None = None
        self._masks: dict[int, NDArray[np.bool_]] = {}

    def put(self, reservation: Reservation) -> None:
        """Reserve nodes; a group has one reservation, and what it had besides is released."""
        before = self._by_key.get(reservation.key)
        if before is not None:
            self._released |= before.nodes - reservation.nodes
        self._by_key[reservation.key] = reservation
        self._masks.clear()

    def end(self, key: GroupKey) -> None:
        """End a group's reservation, if there is one."""
        before = self._by_key.pop(key, None)
        if before is not None:
            self._released |= before.nodes
            self._masks.clear()

    def take_released(self) -> Sequence[str]:
        """The nodes that are no longer reserved, since the last call, by name."""
        if not self._released:
            return ()
        released, self._released = self._released, set()
        kept = {node for one in self._by_key.values() for node in one.nodes}
        return sorted(released - kept)

    def of(self, key: GroupKey) -> Reservation | None:
        """The reservation of a group; None where it has none."""
        return self._by_key.get(key)

    def nodes(self, key: GroupKey) -> frozenset[str]:
        """The nodes of a group; none where it has no reservation."""
        one = self._by_key.get(key)
        return frozenset() if one is None else one.nodes

    def all(self) -> Sequence[Reservation]:
        """All reservations, oldest first."""
        return tuple(self._by_key.values())

    def names(self, priority: int, *, but: GroupKey | None = None) -> frozenset[str]:
        """The nodes that pods of a priority may not have; `but` is the group that they are of."""
        nodes: frozenset[str] = frozenset()
        for one in self._by_key.values():
            if priority <= one.priority and one.key != but:
                nodes |= one.nodes
        return nodes

    def titles(self, priority: int, *, but: GroupKey | None = None) -> dict[str, str]:
        """The same nodes, each with the group that it is reserved for."""
        kept = self.names(priority, but=but)
        groups = ((node, one.title) for one in self._by_key.values() for node in one.nodes)
        return {node: title for node, title in groups if node in kept}

    def mask(
        self, priority: int, node_index: NodeIndex, *, nominated: str | None = None
    ) -> NDArray[np.bool_] | None:
        """Bool[n] by position in a node index, for a pod of no group with a size; None for none.

        Where a pod is nominated, others were evicted for it already: it may go there.
        """
        if not self._by_key:
            return None
        if node_index is not self._node_index:
            self._node_index = node_index
            self._masks.clear()
        mask = self._masks.get(priority)
        if mask is None:
            mask = np.zeros(len(node_index.names), dtype=np.bool_)
            positions = (node_index.positions.get(name) for name in self.names(priority))
            mask[[one for one in positions if one is not None]] = True
            self._masks[priority] = mask
        position = node_index.positions.get(nominated or "")
        if position is not None and mask[position]:
            mask = mask.copy()
            mask[position] = False
        return mask
