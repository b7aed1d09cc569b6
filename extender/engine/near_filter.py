"""Filter for a pod whose group has no size: near the bound members, first come, first served.

Only nodes of the nearest domain around the bound members that has a feasible one are named; how
these compare is up to prioritize, as for every pod. Where no member is bound, or none of the
domains has a feasible node, it is the filter of every pod.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from extender.placement import RequestedNodes, filter_nodes, refuse_nodes
from extender.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from extender.groups import NearBound
    from extender.placement import Filtered, Rater, RatingBudget
    from extender.protocol import PodRequest
    from extender.rules import Rules
    from extender.snapshot import ClusterSnapshot

__all__ = ["filter_near"]


def filter_near(  # noqa: PLR0913 - as `filter_nodes`, and the group
    request: PodRequest,
    requested: RequestedNodes,
    snapshot: ClusterSnapshot,
    *,
    near_bound: NearBound,
    rater: Rater,
    rules: Rules,
    budget: RatingBudget | None = None,
    reserved: NDArray[np.bool_] | None = None,
    siblings: Sequence[str] = (),
) -> Filtered:
    """Name the nodes that can take the pod; O(levels) calls of `filter_nodes`.

    `siblings` are nodes of members that count as bound.
    """
    named = partial(
        filter_nodes,
        request,
        snapshot=snapshot,
        rater=rater,
        rules=rules,
        budget=budget,
        reserved=reserved,
    )
    nearby = near_bound.nodes(request, snapshot.node_index, siblings)
    for is_near in nearby.sets:
        near = RequestedNodes(requested.positions[is_near[requested.positions]])
        filtered = named(near)
        if filtered.n_feasible:
            return filtered
    if nearby.is_required:
        return refuse_nodes(requested, snapshot.node_index, Reason.GROUP_NO_ROOM)
    return named(requested)
