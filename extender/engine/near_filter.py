"""Filter for a pod whose group has no size: near the bound members, first come, first served.

Only nodes of the nearest domain around the bound members that has a feasible one are named; how
these compare is up to prioritize, as for every pod. Where no member is bound, or none of the
domains has a feasible node, it is the filter of every pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.placement import RequestedNodes, refuse_nodes
from extender.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from extender.groups import NearBound
    from extender.placement import Filtered
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot

__all__ = ["filter_near"]


def filter_near(  # noqa: PLR0913 - what a filter depends on, and the group
    request: PodRequest,
    requested: RequestedNodes,
    snapshot: ClusterSnapshot,
    *,
    near_bound: NearBound,
    named: Callable[[RequestedNodes], Filtered],
    siblings: Sequence[str] = (),
) -> Filtered:
    """Name the nodes that can take the pod; O(levels) calls of `named`.

    `named` is the filter of every pod, over some of the nodes. `siblings` are nodes of members that
    count as bound.
    """
    nearby = near_bound.nodes(request, snapshot.node_index, siblings)
    for is_near in nearby.sets:
        near = RequestedNodes(requested.positions[is_near[requested.positions]])
        filtered = named(near)
        if filtered.n_feasible:
            return filtered
    if nearby.is_required:
        return refuse_nodes(requested, snapshot.node_index, Reason.GROUP_NO_ROOM)
    return named(requested)
