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

    `is_sample`: kube-scheduler may have looked at some nodes only, so that a node that is missing
    may be as good as the others.
    """

    node_index: NodeIndex
    is_named: NDArray[np.bool_]
    is_sample: bool

    def has(self, node: str) -> bool:
        """Whether the node was named."""
        position = self.node_index.positions.get(node)
        return position is not None and bool(self.is_named[position])

    def may_go(self, node_index: NodeIndex) -> NDArray[np.bool_]:
        """Bool[n] over the nodes there are now: those that were not left out.

        Nodes of a sample and nodes that are new since may take the pod too.
        """
        if self.is_sample:
            return np.ones(len(node_index.names), dtype=np.bool_)
        if node_index is self.node_index:
            return self.is_named
        names = self.node_index.names
        left_out = {names[i] for i in (~self.is_named).nonzero()[0].tolist()}
        return np.array([name not in left_out for name in node_index.names], dtype=np.bool_)
