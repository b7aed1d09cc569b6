"""Filter, prioritize and the choice of devices for bind, as functions of values.

They are filter (which nodes can take the pod; the best of them), prioritize (how good each
is, 0..10) and bind (exactly which devices). Arguments and one snapshot in, a value out: no clock,
no network, no state but the rater's memory, which never changes an answer.

Filter is free of side effects: kube-scheduler also calls it for pods that it never binds (nominated
nodes, pod groups, other profiles). Prioritize is not called where one node is left, so nothing is
decided there that bind could not decide again.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from extender.placement.candidates import draw
from extender.placement.node_order import Rank, scores
from extender.placement.rating import Rating, Refusal
from extender.protocol import Reason, reason_tail, score_head, score_tail
from topology.annotations import ContainerPlan, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from extender.placement.rating import Rater
    from extender.placement.request_reader import RequestedNodes
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView
    from topology.select import PodFit

__all__ = ["Filtered", "filter_nodes", "plan_bind", "prioritize_nodes"]


@dataclass(frozen=True, slots=True)
class Filtered:
    """Answer of filter. `names_json` are node names as JSON strings, `positions` theirs, int64.

    `failed_json` and `unresolvable_json` are members of the failed maps, empty where any passed.
    `n_feasible` counts the nodes that could take the pod, `names_json` lists those that are
    named. `main_reason` is the most frequent refusal where none could, else None.
    """

    names_json: Sequence[str]
    positions: NDArray[np.int64]
    failed_json: Sequence[str] = ()
    unresolvable_json: Sequence[str] = ()
    n_feasible: int = 0
    main_reason: Reason | None = None


def filter_nodes(
    request: PodRequest,
    requested: RequestedNodes,
    snapshot: ClusterSnapshot,
    *,
    rater: Rater,
    candidate_limit: int,
) -> Filtered:
    """Name the nodes that can take the pod, at most `candidate_limit` (0: all) of the best.

    The pod asks for GPUs. All feasible nodes are named, in request order, where kube-scheduler
    scores nodes by something not visible here: preferred terms of the pod.
    """
    positions, numbers = requested.positions, snapshot.state_ids[requested.positions]
    ratings = _rate(request, numbers, snapshot, rater)
    ranks = _ranks(ratings)
    if not ranks:
        return _refuse_all(request, requested, numbers, snapshot, ratings)
    if len(ranks) < len(ratings):
        fits = np.zeros(len(snapshot.state_numbers), dtype=np.bool_)
        fits[list(ranks)] = True
        is_fitting = fits[numbers]
        positions, numbers = positions[is_fitting], numbers[is_fitting]
    n_feasible = len(positions)
    may_thin = candidate_limit > 0 and not request.has_soft_wishes
    if may_thin and n_feasible > candidate_limit:
        places = _places(ranks, len(snapshot.state_numbers))
        positions = draw(
            snapshot.node_index,
            positions,
            numbers,
            places,
            limit=candidate_limit,
            pod_hash=_pod_hash(request),
        )
    named: list[int] = positions.tolist()
    names_json = snapshot.node_index.names_json
    return Filtered([names_json[i] for i in named], positions, n_feasible=n_feasible)


def prioritize_nodes(
    request: PodRequest, requested: RequestedNodes, snapshot: ClusterSnapshot, *, rater: Rater
) -> list[str]:
    """Score every requested node, 0..10, as JSON entries; the pod asks for GPUs.

    Nodes that cannot take the pod (any more) and unknown nodes score 0; the latter come last.
    """
    positions, numbers = requested.positions, snapshot.state_ids[requested.positions]
    ratings = _rate(request, numbers, snapshot, rater)
    tails = [score_tail(0)] * len(snapshot.state_numbers)
    for number, score in scores(_ranks(ratings), request.size_gpus).items():
        tails[number] = score_tail(score)
    heads = snapshot.node_index.score_heads
    where: list[int] = positions.tolist()
    states: list[int] = numbers.tolist()
    entries = [heads[i] + tails[number] for i, number in zip(where, states, strict=True)]
    return entries + [score_head(name) + score_tail(0) for _, name in requested.unknown]


def plan_bind(
    request: PodRequest, view: NodeView, *, rater: Rater, generation: int
) -> Plan | Refusal:
    """Choose the devices for good, from what is free on the node now; the pod asks for GPUs."""
    (rating,) = rater.rate(request, (view,))
    if isinstance(rating, Refusal):
        return rating
    if rating.fit is None:
        free = [one for i, one in enumerate(view.ids) if view.free >> i & 1]
        ids = tuple(free[: request.size_gpus])
        return Plan(view.name, (), ids, generation, 0.0, request.priority)
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
    score = min(speeds, default=0.0)
    return Plan(view.name, containers, used, generation, score, request.priority)


def _rate(
    request: PodRequest, numbers: NDArray[np.int64], snapshot: ClusterSnapshot, rater: Rater
) -> dict[int, Rating | Refusal]:
    """Rate each state that occurs once, by its number."""
    occurring: list[int] = np.bincount(numbers).nonzero()[0].tolist()
    samples = [snapshot.samples[number] for number in occurring]
    return dict(zip(occurring, rater.rate(request, samples), strict=True))


def _ranks(ratings: Mapping[int, Rating | Refusal]) -> dict[int, Rank]:
    return {number: one.rank for number, one in ratings.items() if isinstance(one, Rating)}


def _places(ranks: Mapping[int, Rank], n_numbers: int) -> NDArray[np.int64]:
    """Place of each state's rank by state number, 0 the best; equal ranks share a place."""
    keys = sorted({rank.key for rank in ranks.values()})
    place_of = {key: place for place, key in enumerate(keys)}
    places = [0] * n_numbers
    for number, rank in ranks.items():
        places[number] = place_of[rank.key]
    return np.array(places, dtype=np.int64)


def _refuse_all(
    request: PodRequest,
    requested: RequestedNodes,
    numbers: NDArray[np.int64],
    snapshot: ClusterSnapshot,
    ratings: Mapping[int, Rating | Refusal],
) -> Filtered:
    """Give every node its reason.

    Topology-only refusals are unresolvable, so that no preemption is attempted in vain. On the
    pod's own nominated node they are not, else the pod preempted again while its victims still
    leave (default_preemption.go of 1.36, podEligibleToPreemptOthers).
    """
    reasons = {n: one.reason for n, one in ratings.items() if isinstance(one, Refusal)}
    tails = {number: reason_tail(reason.value) for number, reason in reasons.items()}
    own = snapshot.positions.get(request.nominated_node or "", -1)
    failed: list[str] = []
    tail = reason_tail(Reason.UNKNOWN_NODE.value)
    unresolvable = [json.dumps(name) + tail for _, name in requested.unknown]
    positions: list[int] = requested.positions.tolist()
    for position, number in zip(positions, numbers.tolist(), strict=True):
        entries = failed if position == own else unresolvable
        entries.append(snapshot.node_index.names_json[position] + tails[number])
    counts = Counter([Reason.UNKNOWN_NODE] * len(requested.unknown))
    for number, n_nodes in enumerate(np.bincount(numbers).tolist()):
        if n_nodes:
            counts[reasons[number]] += n_nodes
    main = max(counts, key=lambda reason: (counts[reason], reason.name), default=None)
    return Filtered((), requested.positions[:0], failed, unresolvable, 0, main)


def _pod_hash(request: PodRequest) -> int:
    return crc32((request.uid or request.full_name).encode())
