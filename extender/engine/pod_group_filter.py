"""Filter for a member of one of Kubernetes' own groups: one node, beside and near its siblings.

kube-scheduler calls it in cycles that it undoes, and shows no more of them; with one node named
it is known where it counts the member (`extender.groups.pod_group_cycle`). The node is the
best one by the scores of prioritize, in the nearest domain around the siblings that has one, with
GPUs of their model. Where there is none the answer is that of every pod, with a reason for each
node. States are rated without a budget, as for other groups: one member's error for want of time
would end the cycle of all.

The first member is answered before it is known how many follow. So a model on which a member found
no node, where others have one, comes last in the next run; once all of them are such, any is tried.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extender.groups.planning import have_models, held_models
from extender.placement import score_nodes
from extender.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from extender.groups import PodGroups
    from extender.placement import Filtered, Rater
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot

__all__ = ["filter_sibling"]


def filter_sibling(
    request: PodRequest,
    now_s: float,
    choose: Callable[[ClusterSnapshot, Sequence[str], NDArray[np.bool_] | None], Filtered],
    pod_groups: PodGroups,
    rater: Rater,
) -> Filtered:
    """Name the member's node, or say why there is none.

    `choose` names the nodes of a snapshot near those of the siblings, some of them last.
    """
    asked = pod_groups.ask(request, now_s)
    later = have_models(asked.snapshot, asked.failed) if asked.failed else None
    filtered = choose(asked.snapshot, asked.siblings, later)
    if not filtered.n_feasible:
        if filtered.main_reason is Reason.GROUP_ONE_MODEL:
            pod_groups.failed_on(request, held_models(asked.snapshot, asked.siblings))
        return filtered
    scores = score_nodes(request, filtered.positions, asked.snapshot, rater=rater)
    best = scores.index(max(scores))
    position = filtered.positions[best : best + 1]
    node = asked.snapshot.node_index.names[int(position[0])]
    pod_groups.answered(request, node)
    if held_models(asked.snapshot, (node,)) <= asked.failed:
        pod_groups.retry_models(request)
    return replace(filtered, names_json=[filtered.names_json[best]], positions=position)
