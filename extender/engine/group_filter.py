"""Filter for the members of a group: from what was claimed, unrated.

kube-scheduler calls it for every waiting member whenever any pod is bound, so the answer is looked
up: the member's own node, or one constant reason for all nodes, which is encoded once.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from extender.groups import OfferedNodes
from extender.pending import is_sample_size
from extender.placement import refuse_nodes
from extender.protocol import Reason, responses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from extender.groups import Groups
    from extender.protocol import PodRequest
    from extender.snapshot import NodeIndex, RequestedNodes

__all__ = ["GroupFilter", "MemberAnswer"]

MAX_OFFERS = 16
"""Sets of nodes that are remembered: members with other selectors, and nodes that filled up."""


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """The body of an answer; `reason` is None where a node is named."""

    body: bytes
    reason: Reason | None


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """The nodes of a request, and the answers that refuse all of them."""

    offer: OfferedNodes
    refusals: dict[Reason, bytes] = field(default_factory=dict[Reason, bytes])


class GroupFilter:
    """Answers filter calls for members of groups with a size."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._node_index: NodeIndex | None = None
        self._nodes: OrderedDict[bytes, _Nodes] = OrderedDict()

    def answer(
        self, request: PodRequest, requested: RequestedNodes, node_index: NodeIndex, now_s: float
    ) -> MemberAnswer:
        """Answer a call; members of one group are mostly called for with the same nodes."""
        nodes = self._of(requested.positions, node_index)
        found = self._groups.filter(request, nodes.offer, now_s)
        if not isinstance(found, Reason):
            return MemberAnswer(responses.encode_filter([json.dumps(found.node)]), None)
        body = None if requested.unknown else nodes.refusals.get(found)
        if body is None:
            refused = refuse_nodes(requested, node_index, found)
            body = responses.encode_filter((), unresolvable_json=refused.unresolvable_json)
            if not requested.unknown:
                nodes.refusals[found] = body
        return MemberAnswer(body, found)

    def _of(self, positions: NDArray[np.int64], node_index: NodeIndex) -> _Nodes:
        if node_index is not self._node_index:
            self._node_index = node_index
            self._nodes.clear()
        # By the set: kube-scheduler names nodes in the order in which its workers came to them.
        is_named = np.zeros(len(node_index.names), dtype=np.bool_)
        is_named[positions] = True
        key = is_named.tobytes()
        nodes = self._nodes.get(key)
        if nodes is None:
            may_be_sample = is_sample_size(len(positions), len(is_named))
            nodes = self._nodes[key] = _Nodes(OfferedNodes(node_index, is_named, may_be_sample))
            if len(self._nodes) > MAX_OFFERS:
                self._nodes.popitem(last=False)
        self._nodes.move_to_end(key)
        return nodes
