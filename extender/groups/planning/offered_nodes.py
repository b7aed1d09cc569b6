"""The nodes that a filter call names: those that kube-scheduler's own filters leave for a pod.

It says whether a node was named. Members of one group are mostly called for with the same nodes, so
that they share one value. It chooses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from extender.snapshot import NodeIndex

__all__ = ["OfferedNodes"]


@dataclass(frozen=True, slots=True, eq=False)
class OfferedNodes:
    """The nodes of one call, by position in the index of that time: bool[n].

    `may_be_sample`: kube-scheduler may have looked at some nodes only, so that a node that is
    missing may be as good as the others.
    """

    node_index: NodeIndex
    is_named: NDArray[np.bool_]
    may_be_sample: bool

    def has(self, node: str) -> bool:
        """Whether the node was named."""
        position = self.node_index.positions.get(node)
        return position is not None and bool(self.is_named[position])

    def is_only(self, node: str | None) -> bool:
        """Whether this node was named alone."""
        return node is not None and self.has(node) and int(self.is_named.sum()) == 1

    def is_same(self, other: OfferedNodes) -> bool:
        """Whether both calls named the same nodes, of the same ones."""
        return self is other or (
            self.node_index is other.node_index and np.array_equal(self.is_named, other.is_named)
        )

    def has_more(self, other: OfferedNodes) -> bool:
        """Whether a node is named here that the other call left out, or did not know."""
        if self.node_index is not other.node_index:
            return True
        return bool((self.is_named & ~other.is_named).any())

    def is_other_sample(self, other: OfferedNodes) -> bool:
        """Whether both calls looked at as many nodes, and not at the same."""
        return (
            self.may_be_sample
            and other.may_be_sample
            and self.node_index is other.node_index
            and int(self.is_named.sum()) == int(other.is_named.sum())
            and not self.is_same(other)
        )

    def joined(self, other: OfferedNodes) -> OfferedNodes:
        """The nodes of both calls; this one's alone where the other is of an older index."""
        if self.node_index is not other.node_index:
            return self
        if not self.has_more(other):
            return other
        return OfferedNodes(self.node_index, self.is_named | other.is_named, may_be_sample=True)

    def may_go(self, node_index: NodeIndex) -> NDArray[np.bool_]:
        """Bool[n] over the nodes there are now: those that were not left out.

        Nodes that are new since may take the pod too.
        """
        if node_index is self.node_index:
            return self.is_named
        names = self.node_index.names
        left_out = {names[i] for i in (~self.is_named).nonzero()[0].tolist()}
        return np.array([name not in left_out for name in node_index.names], dtype=np.bool_)
