"""The scheduler's three questions, answered from values alone.

What it answers: filter (which nodes can take the pod; the best of them), prioritize (how good each
is, 0..10) and bind (exactly which devices). Arguments and one snapshot in, a value out: no clock,
no network, no state but the rater's memory, which never changes an answer.

Filter is free of side effects: kube-scheduler also calls it for pods that it never binds (nominated
nodes, pod groups, other profiles). Prioritize is not called where one node is left, so nothing is
decided there that bind could not decide again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from operator import add, attrgetter
from typing import TYPE_CHECKING
from zlib import crc32

from extender.candidates import draw
from extender.compare import scores
from extender.plan import ContainerPlan, Plan
from extender.rating import Rating, Refusal
from extender.reasons import Reason
from extender.wire import score_head, score_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from extender.rating import Rater
    from extender.request import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView
    from topology.fit import PodFit

__all__ = ["Filtered", "filter_nodes", "plan_bind", "prioritize_nodes"]

_STATE: Callable[[NodeView], int] = attrgetter("state")
_SCORE_JSON: Callable[[NodeView], str] = attrgetter("score_json")


@dataclass(frozen=True, slots=True)
class Filtered:
    """Answer of filter. `names_json` are JSON strings; the failed maps are empty where any passed.

    `n_feasible` counts the nodes that could take the pod, `names_json` those that the scheduler
    hears of. `main_reason` is the most frequent refusal where none could, else None.
    """

    names_json: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    unresolvable: Mapping[str, str] = field(default_factory=dict[str, str])
    n_feasible: int = 0
    main_reason: Reason | None = None


def filter_nodes(
    request: PodRequest,
    node_names: Sequence[str],
    snapshot: ClusterSnapshot,
    *,
    rater: Rater,
    candidate_limit: int,
) -> Filtered:
    """Name the nodes that can take the pod, at most `candidate_limit` (0: all) of the best.

    The pod asks for GPUs. All feasible nodes are named, in the order asked, where kube-scheduler
    weighs nodes by something we do not see: preferred terms of the pod, PreferNoSchedule taints.
    """
    views, _, ratings = _rate(request, node_names, snapshot, rater)
    ranks = {state: r.rank for state, r in ratings.items() if isinstance(r, Rating)}
    if not ranks:
        return _refuse_all(request, node_names, views, ratings)
    if len(ranks) < len(ratings):
        views = [view for view in views if view.state in ranks]
    n_feasible = len(views)
    may_thin = candidate_limit > 0 and not (request.has_soft_wishes or snapshot.has_soft_taints)
    if may_thin and n_feasible > candidate_limit:
        views = draw(views, ranks, limit=candidate_limit, pod_hash=_pod_hash(request))
    return Filtered([view.host_json for view in views], n_feasible=n_feasible)


def prioritize_nodes(
    request: PodRequest,
    node_names: Sequence[str],
    snapshot: ClusterSnapshot,
    *,
    rater: Rater,
) -> list[str]:
    """Score every node asked about, 0..10, as JSON entries; the pod asks for GPUs.

    Nodes that cannot take the pod (any more) and nodes that we do not know score 0; the latter come
    last.
    """
    views, states, ratings = _rate(request, node_names, snapshot, rater)
    ranks = {state: r.rank for state, r in ratings.items() if isinstance(r, Rating)}
    by_state = dict.fromkeys(ratings, 0) | scores(ranks, request.size_gpus)
    tails = {state: score_tail(score) for state, score in by_state.items()}
    entries = list(map(add, map(_SCORE_JSON, views), map(tails.__getitem__, states)))
    entries += [score_head(name) + score_tail(0) for name in _unknown(node_names, views)]
    return entries


def plan_bind(
    request: PodRequest, view: NodeView, *, rater: Rater, generation: int
) -> Plan | Refusal:
    """Choose the devices for good, from what is free on the node now; the pod asks for GPUs."""
    rating = rater.rate(request, {view.state: view})[view.state]
    if isinstance(rating, Refusal):
        return rating
    if rating.fit is None:
        free = [one for i, one in enumerate(view.ids) if view.free >> i & 1]
        return Plan(view.name, (), tuple(free[: request.size_gpus]), generation, 0.0)
    return _plan(request, view, rating.fit, generation)


def _plan(request: PodRequest, view: NodeView, fit: PodFit, generation: int) -> Plan:
    by_position = dict(fit.containers)
    containers = tuple(
        ContainerPlan(
            name=name,
            resource=view.kind.resource,
            ids=tuple(view.ids[gpu] for gpu in by_position[str(i)].gpus),
        )
        for i, name in enumerate(request.containers)
    )
    speeds = [one.value_gbytes_per_s for _, one in fit.containers if len(one.gpus) > 1]
    used = tuple(one for i, one in enumerate(view.ids) if fit.used >> i & 1)
    return Plan(view.name, containers, used, generation, min(speeds, default=0.0))


def _rate(
    request: PodRequest, node_names: Sequence[str], snapshot: ClusterSnapshot, rater: Rater
) -> tuple[list[NodeView], list[int], dict[int, Rating | Refusal]]:
    """Look up the nodes asked about: those we know, their states in step, each state's rating.

    Whole-list operations of C functions: at 5,000 names each pass is some 0.1 ms, which as a loop
    of statements would be 1 ms.
    """
    found = map(snapshot.nodes.get, node_names)
    views = [view for view in found if view is not None]
    states = list(map(_STATE, views))
    return views, states, rater.rate(request, dict(zip(states, views, strict=True)))


def _unknown(node_names: Sequence[str], views: Sequence[NodeView]) -> list[str]:
    if len(views) == len(node_names):
        return []
    known = {view.name for view in views}
    return [name for name in node_names if name not in known]


def _refuse_all(
    request: PodRequest,
    node_names: Sequence[str],
    views: Sequence[NodeView],
    ratings: dict[int, Rating | Refusal],
) -> Filtered:
    """Give every node its reason.

    Topology-only refusals are unresolvable: evicting pods would not be tried in vain. On the pod's
    own nominated node they are not, else the pod preempted again while its victims still leave
    (default_preemption.go of 1.36, podEligibleToPreemptOthers).
    """
    reasons = {state: r.reason for state, r in ratings.items() if isinstance(r, Refusal)}
    by_name = dict.fromkeys(_unknown(node_names, views), Reason.UNKNOWN_NODE)
    by_name |= {view.name: reasons[view.state] for view in views}
    counts = Counter(by_name.values())
    main = max(counts, key=lambda reason: (counts[reason], reason.name), default=None)
    failed: dict[str, str] = {}
    if request.nominated_node in by_name:
        failed[request.nominated_node] = by_name.pop(request.nominated_node).value
    unresolvable = {name: reason.value for name, reason in by_name.items()}
    return Filtered((), failed, unresolvable, 0, main)


def _pod_hash(request: PodRequest) -> int:
    return crc32((request.uid or request.full_name).encode())
