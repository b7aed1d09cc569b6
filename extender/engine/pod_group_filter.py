"""Filter for a member of one of Kubernetes' own groups: one node, beside and near its siblings.

kube-scheduler calls it in cycles that it undoes, and shows no more of them; with one node named
it is known where it counts the member (`extender.groups.pod_group_cycle`). The node is the
best one by the scores of prioritize, in the nearest domain around the siblings that has one. Where
there is none the answer is that of every pod, with a reason for each node. States are rated without
a budget, as for other groups: one member's error for want of time would end the cycle of all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extender.placement import score_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from extender.groups import PodGroups
    from extender.placement import Filtered, Rater
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot

__all__ = ["filter_sibling"]


def filter_sibling(
    request: PodRequest,
    now_s: float,
    choose: Callable[[ClusterSnapshot, Sequence[str]], Filtered],
    pod_groups: PodGroups,
    rater: Rater,
) -> Filtered:
    """Name the member's node, or say why there is none.

    `choose` names the nodes of a snapshot near those of the siblings.
    """
    asked = pod_groups.ask(request, now_s)
    filtered = choose(asked.snapshot, asked.siblings)
    if not filtered.n_feasible:
        return filtered
    scores = score_nodes(request, filtered.positions, asked.snapshot, rater=rater)
    best = scores.index(max(scores))
    position = filtered.positions[best : best + 1]
    pod_groups.answered(request, asked.snapshot.node_index.names[int(position[0])])
    return replace(filtered, names_json=[filtered.names_json[best]], positions=position)
