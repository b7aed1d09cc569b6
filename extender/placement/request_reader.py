"""Reads filter and prioritize requests: the pod and the nodes.

Returns the pod's request and the nodes' positions in the cluster's node index.
kube-scheduler sends thousands of node names for each pod. On cores shared with other programs every
object touched is a cache miss, so a body in the form that Go writes is cut, not parsed: its names
are compared as bytes, and the pod, which prioritize sends again just after filter, is read once
(ADR 0012, 0014).

A body in which anything is unusual (white space, an escaped or an unknown name, a pod that cannot
be read) is left to the parser that reads it field by field and reports what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.errors import MalformedPod, UserError, WireError
from extender.protocol import messages, parse_pod

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from extender.protocol import PodRequest
    from extender.snapshot import NodeIndex

__all__ = ["NodesRequest", "RequestReader", "RequestedNodes", "locate"]


@dataclass(frozen=True, slots=True, eq=False)
class RequestedNodes:
    """The requested nodes: `positions` int64 of those that are known, in order.

    `unknown` are the others: their places among all, ascending, and their names.
    """

    positions: NDArray[np.int64]
    unknown: Sequence[tuple[int, str]] = ()

    def __len__(self) -> int:
        return len(self.positions) + len(self.unknown)

    def names(self, node_index: NodeIndex) -> list[str]:
        """All names, in order; `node_index` is the one that they were looked up in."""
        positions: list[int] = self.positions.tolist()
        names = [node_index.names[i] for i in positions]
        for place, name in self.unknown:
            names.insert(place, name)
        return names


def locate(names: Sequence[str], node_index: NodeIndex) -> RequestedNodes:
    """Look up nodes by name."""
    positions = node_index.locate(names)
    unknown = [(place, names[place]) for place in (positions < 0).nonzero()[0].tolist()]
    return RequestedNodes(positions[positions >= 0], unknown)


@dataclass(frozen=True, slots=True, eq=False)
class NodesRequest:
    """A request of filter or prioritize."""

    request: PodRequest
    nodes: RequestedNodes


class RequestReader:
    """Reads requests in the form that Go writes, for pods with the managed `resources`.

    `group_kinds` are those whose groups are inferred.
    """

    def __init__(self, resources: Sequence[str], group_kinds: Collection[str] = ()) -> None:
        self._resources = resources
        self._group_kinds = group_kinds
        self._pod: tuple[bytes, PodRequest] | None = None
        self._next: tuple[bytes, NodesRequest, NodeIndex] | None = None

    def read(self, body: bytes, node_index: NodeIndex) -> NodesRequest | None:
        """Read a request of filter or prioritize; None where anything is unusual."""
        if self._next is not None:
            text, request, known = self._next
            if body == text and known is node_index:
                return request
        cut = messages.cut_names(body)
        if cut is None:
            return None
        head, texts = cut
        positions = node_index.locate_json(texts)
        if positions is None:
            return None
        if self._pod is None or self._pod[0] != head:
            try:
                pod = messages.decode(messages.ExtenderArgs, head + messages.NO_NAMES).pod
                self._pod = head, parse_pod(pod, self._resources, self._group_kinds)
            except (WireError, MalformedPod, UserError):
                return None
        return NodesRequest(self._pod[1], RequestedNodes(positions))

    def expect(
        self,
        request: PodRequest,
        names_json: Sequence[str],
        positions: NDArray[np.int64],
        node_index: NodeIndex,
    ) -> None:
        """Filter named these nodes for the pod: prioritize follows with the same nodes."""
        if self._pod is None or self._pod[1] is not request or len(names_json) < _LEAST_COMPARED:
            return
        body = messages.join_names(self._pod[0], names_json)
        self._next = body, NodesRequest(request, RequestedNodes(positions)), node_index


_LEAST_COMPARED = 2
"""Nodes of which kube-scheduler compares what is left (schedule_one.go of 1.36, schedulePod)."""
