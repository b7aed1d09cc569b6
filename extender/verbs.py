"""The scheduler's three questions, answered from values alone.

What it answers: filter (which nodes can take the pod; the best of them), prioritize (how good each
is, 0..10) and bind (exactly which devices). Arguments and one snapshot in, a value out: no clock,
no network, no state but the rater's memory, which never changes an answer.

Filter is free of side effects: kube-scheduler also calls it for pods that it never binds (nominated
nodes, pod groups, other profiles). Prioritize is not called where one node is left, so nothing is
decided there that bind could not decide again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING
from zlib import crc32

from extender.candidates import draw
from extender.compare import scores
from extender.plan import ContainerPlan, Plan
from extender.rating import Rating, Refusal
from extender.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from extender.rating import Rater
    from extender.request import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView
    from topology.fit import PodFit

__all__ = ["Filtered", "filter_nodes", "plan_bind", "prioritize_nodes"]


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
    states, unknown = _by_state(node_names, snapshot)
    ratings = rater.rate(request, {state: views[0] for state, views in states.items()})
    fitting = {state: r for state, r in ratings.items() if isinstance(r, Rating)}
    n_feasible = sum(len(states[state]) for state in fitting)
    if n_feasible == 0:
        refused = {state: r for state, r in ratings.items() if isinstance(r, Refusal)}
        return _refuse_all(request, states, refused, unknown)
    may_thin = candidate_limit > 0 and not (request.has_soft_wishes or snapshot.has_soft_taints)
    if may_thin and n_feasible > candidate_limit:
        drawn = draw(
            _best_first(fitting, states),
            limit=candidate_limit,
            pod_hash=_pod_hash(request),
            n_zones=len(snapshot.zones),
        )
        return Filtered([view.host_json for view in drawn], n_feasible=n_feasible)
    nodes = snapshot.nodes
    named = [
        view.host_json
        for name in node_names
        if (view := nodes.get(name)) is not None and view.state in fitting
    ]
    return Filtered(named, n_feasible=n_feasible)


def prioritize_nodes(
    request: PodRequest,
    node_names: Sequence[str],
    snapshot: ClusterSnapshot,
    *,
    rater: Rater,
) -> dict[int, int]:
    """Score every state among the nodes asked about, 0..10; the pod asks for GPUs.

    Nodes that cannot take the pod (any more) score 0.
    """
    states, _ = _by_state(node_names, snapshot)
    ratings = rater.rate(request, {state: views[0] for state, views in states.items()})
    ranks = {state: r.rank for state, r in ratings.items() if isinstance(r, Rating)}
    return dict.fromkeys(ratings, 0) | scores(ranks, request.size_gpus)


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


def _by_state(
    node_names: Sequence[str], snapshot: ClusterSnapshot
) -> tuple[dict[int, list[NodeView]], list[str]]:
    """Group the nodes asked about by state; the second part are those we do not know."""
    nodes = snapshot.nodes
    states: dict[int, list[NodeView]] = {}
    unknown: list[str] = []
    for name in node_names:
        view = nodes.get(name)
        if view is None:
            unknown.append(name)
        elif view.state in states:
            states[view.state].append(view)
        else:
            states[view.state] = [view]
    return states, unknown


def _best_first(
    fitting: dict[int, Rating], states: dict[int, list[NodeView]]
) -> Iterator[list[NodeView]]:
    """Groups of nodes that are equal to the pod, the best group first."""
    order = sorted(fitting, key=lambda state: fitting[state].rank.key)
    for _, equal in groupby(order, key=lambda state: fitting[state].rank.key):
        yield [view for state in equal for view in states[state]]


def _refuse_all(
    request: PodRequest,
    states: dict[int, list[NodeView]],
    refused: dict[int, Refusal],
    unknown: Sequence[str],
) -> Filtered:
    """Give every node its reason.

    Topology-only refusals are unresolvable: evicting pods would not be tried in vain. On the pod's
    own nominated node they are not, else the pod preempted again while its victims still leave
    (default_preemption.go of 1.36, podEligibleToPreemptOthers).
    """
    failed: dict[str, str] = {}
    unresolvable = dict.fromkeys(unknown, Reason.UNKNOWN_NODE.value)
    counts = {Reason.UNKNOWN_NODE: len(unknown)} if unknown else {}
    for state, views in states.items():
        reason = refused[state].reason
        counts[reason] = counts.get(reason, 0) + len(views)
        for view in views:
            is_nominated = view.name == request.nominated_node
            (failed if is_nominated else unresolvable)[view.name] = reason.value
    main = max(counts, key=lambda reason: (counts[reason], reason.name), default=None)
    return Filtered((), failed, unresolvable, 0, main)


def _pod_hash(request: PodRequest) -> int:
    return crc32((request.uid or request.full_name).encode())
