"""Filter for the members of a group: from what was claimed, unrated.

kube-scheduler calls it for every waiting member whenever any pod is bound, so the answer is looked
up: the member's own node, or one constant reason for all nodes, which is encoded once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from extender.protocol import Reason, messages, reason_tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from extender.groups import Groups
    from extender.placement import RequestedNodes
    from extender.protocol import PodRequest
    from extender.snapshot import NodeIndex

__all__ = ["GroupFilter", "MemberAnswer"]


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """The body of an answer; `reason` is None where a node is named."""

    body: bytes
    reason: Reason | None


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """The nodes of the last request: which others there are, and the answers that refuse all."""

    node_index: NodeIndex
    positions: NDArray[np.int64]
    left_out: frozenset[str]
    refusals: dict[Reason, bytes]


class GroupFilter:
    """Answers filter calls for members of groups with a size."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._nodes: _Nodes | None = None

    def answer(
        self, request: PodRequest, requested: RequestedNodes, node_index: NodeIndex, now_s: float
    ) -> MemberAnswer:
        """Answer a call; members of one group are mostly called for with the same nodes."""
        nodes = self._of(requested, node_index)
        found = self._groups.filter(request, nodes.left_out, now_s)
        if not isinstance(found, Reason):
            return MemberAnswer(messages.encode_filter([json.dumps(found.node)]), None)
        body = nodes.refusals.get(found)
        if body is None:
            tail = reason_tail(found.value)
            positions: list[int] = requested.positions.tolist()
            refused = [node_index.names_json[i] + tail for i in positions]
            refused += [json.dumps(name) + tail for _, name in requested.unknown]
            body = nodes.refusals[found] = messages.encode_filter((), unresolvable_json=refused)
        return MemberAnswer(body, found)

    def _of(self, requested: RequestedNodes, node_index: NodeIndex) -> _Nodes:
        nodes = self._nodes
        if (
            nodes is not None
            and nodes.node_index is node_index
            and not requested.unknown
            and np.array_equal(nodes.positions, requested.positions)
        ):
            return nodes
        is_offered = np.zeros(len(node_index.names), dtype=np.bool_)
        is_offered[requested.positions] = True
        left_out = frozenset(node_index.names[i] for i in (~is_offered).nonzero()[0].tolist())
        self._nodes = _Nodes(node_index, requested.positions, left_out, {})
        return self._nodes
