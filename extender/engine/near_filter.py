"""Filter for a pod whose group has no size: near the bound members, first come, first served.

Only nodes of the nearest domain around the bound members that has a feasible one are named, of
those with GPUs of their model; how these compare is up to prioritize, as for every pod. Where none
of the domains has one it is any node with that model, and where no member is bound it is the filter
of every pod.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extender.placement import refuse_nodes
from extender.protocol import Reason
from extender.snapshot import RequestedNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

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
    later: NDArray[np.bool_] | None = None,
) -> Filtered:
    """Name the nodes that can take the pod; O(levels) calls of `named`.

    `named` is the filter of every pod, over some of the nodes. `siblings` are nodes of members that
    count as bound. Nodes of `later`, bool[n] by position, are named only where no other is.
    """
    positions = requested.positions
    nearby = near_bound.nodes(request, snapshot, positions, siblings)
    ours = positions if nearby.others is None else positions[~nearby.others[positions]]
    if later is not None and nearby.others is None:
        filtered = named(RequestedNodes(ours[~later[ours]]))
        if filtered.n_feasible:
            return filtered
    for is_near in nearby.sets:
        filtered = named(RequestedNodes(ours[is_near[ours]]))
        if filtered.n_feasible:
            return filtered
    if nearby.is_required:
        return refuse_nodes(requested, snapshot.node_index, Reason.GROUP_NO_ROOM)
    if nearby.others is None:
        return named(requested)
    filtered = named(RequestedNodes(ours, requested.unknown))
    theirs = RequestedNodes(positions[nearby.others[positions]])
    if filtered.n_feasible or not len(theirs):
        return filtered
    others = named(theirs)
    main_reason = filtered.main_reason
    if others.n_feasible:
        main_reason = Reason.GROUP_ONE_MODEL
        others = refuse_nodes(theirs, snapshot.node_index, main_reason)
    return replace(
        filtered,
        failed_json=[*filtered.failed_json, *others.failed_json],
        unresolvable_json=[*filtered.unresolvable_json, *others.unresolvable_json],
        main_reason=main_reason or others.main_reason,
    )
