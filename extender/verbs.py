"""The scheduler's three questions, answered from values alone.

What it answers: filter (which nodes can take the pod; the best of them), prioritize (how good each
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
from hashlib import blake2b
from itertools import repeat
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from extender.candidates import draw
from extender.compare import Rank, scores
from extender.rating import Rating, Refusal
from extender.reasons import Reason
from extender.wire import reason_tail, score_head, score_tail
from topology.plan import ContainerPlan, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from extender.rating import Rater
    from extender.request import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView
    from topology.fit import PodFit

__all__ = ["Filtered", "filter_nodes", "plan_bind", "prioritize_nodes"]


@dataclass(frozen=True, slots=True)
class Filtered:
    """Answer of filter. `names_json` are node names as JSON strings.

    `failed_json` and `unresolvable_json` are members of the failed maps, empty where any passed.
    `n_feasible` counts the nodes that could take the pod, `names_json` those that the scheduler
    hears of. `main_reason` is the most frequent refusal where none could, else None.
    """

    names_json: Sequence[str]
    failed_json: Sequence[str] = ()
    unresolvable_json: Sequence[str] = ()
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
    asked = _look_up(request, node_names, snapshot, rater)
    ranks = _ranks(asked.ratings)
    if not ranks:
        return _refuse_all(request, node_names, snapshot, asked)
    positions, numbers = asked.positions, asked.state_ids
    if len(ranks) < len(asked.ratings):
        fits = np.zeros(len(snapshot.state_numbers), dtype=np.bool_)
        fits[list(ranks)] = True
        is_fitting = fits[numbers]
        positions, numbers = positions[is_fitting], numbers[is_fitting]
    n_feasible = len(positions)
    named: list[int] = []
    may_thin = candidate_limit > 0 and not (request.has_soft_wishes or snapshot.has_soft_taints)
    if may_thin and n_feasible > candidate_limit:
        places = _places(ranks, len(snapshot.state_numbers))[numbers]
        named = draw(
            snapshot, positions, places, limit=candidate_limit, pod_hash=_pod_hash(request)
        )
    else:
        named = positions.tolist()
    return Filtered([snapshot.views[i].host_json for i in named], n_feasible=n_feasible)


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
    asked = _look_up(request, node_names, snapshot, rater)
    tails = [score_tail(0)] * len(snapshot.state_numbers)
    for number, score in scores(_ranks(asked.ratings), request.size_gpus).items():
        tails[number] = score_tail(score)
    heads = map(snapshot.score_heads.__getitem__, asked.positions.tolist())
    entries = list(map(add, heads, map(tails.__getitem__, asked.state_ids.tolist())))
    unknown = _unknown(node_names, snapshot, asked)
    return entries + [score_head(name) + score_tail(0) for name in unknown]


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


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """The nodes asked about that we know: positions and state numbers in step, int64.

    `ratings` are those of the states that occur, by number.
    """

    positions: NDArray[np.int64]
    state_ids: NDArray[np.int64]
    ratings: dict[int, Rating | Refusal]


def _look_up(
    request: PodRequest, node_names: Sequence[str], snapshot: ClusterSnapshot, rater: Rater
) -> _Asked:
    """Find the nodes asked about and rate each of their states once."""
    found = map(snapshot.positions.get, node_names, repeat(-1))
    positions = np.fromiter(found, dtype=np.int64, count=len(node_names))
    if len(positions) and positions.min() < 0:
        positions = positions[positions >= 0]
    state_ids = snapshot.state_ids[positions]
    example = np.full(len(snapshot.state_numbers), -1, dtype=np.int64)
    example[state_ids] = positions
    numbers = np.flatnonzero(example >= 0)
    examples: list[int] = example[numbers].tolist()
    views = [snapshot.views[i] for i in examples]
    ratings = dict(zip(numbers.tolist(), rater.rate(request, views), strict=True))
    return _Asked(positions, state_ids, ratings)


def _ranks(ratings: Mapping[int, Rating | Refusal]) -> dict[int, Rank]:
    return {number: one.rank for number, one in ratings.items() if isinstance(one, Rating)}


def _places(ranks: Mapping[int, Rank], n_numbers: int) -> NDArray[np.int64]:
    """Place of each state's rank by state number, 0 the best; equal ranks share a place."""
    keys = sorted({rank.key for rank in ranks.values()})
    place_of = {key: place for place, key in enumerate(keys)}
    places = np.zeros(n_numbers, dtype=np.int64)
    for number, rank in ranks.items():
        places[number] = place_of[rank.key]
    return places


def _unknown(node_names: Sequence[str], snapshot: ClusterSnapshot, asked: _Asked) -> list[str]:
    if len(asked.positions) == len(node_names):
        return []
    return [name for name in node_names if name not in snapshot.positions]


def _refuse_all(
    request: PodRequest,
    node_names: Sequence[str],
    snapshot: ClusterSnapshot,
    asked: _Asked,
) -> Filtered:
    """Give every node its reason.

    Topology-only refusals are unresolvable: evicting pods would not be tried in vain. On the pod's
    own nominated node they are not, else the pod preempted again while its victims still leave
    (default_preemption.go of 1.36, podEligibleToPreemptOthers).
    """
    reasons = {n: one.reason for n, one in asked.ratings.items() if isinstance(one, Refusal)}
    tails = {number: reason_tail(reason.value) for number, reason in reasons.items()}
    own = snapshot.positions.get(request.nominated_node or "", -1)
    failed: list[str] = []
    unknown = _unknown(node_names, snapshot, asked)
    tail = reason_tail(Reason.UNKNOWN_NODE.value)
    unresolvable = [json.dumps(name) + tail for name in unknown]
    positions: list[int] = asked.positions.tolist()
    for position, number in zip(positions, asked.state_ids.tolist(), strict=True):
        entries = failed if position == own else unresolvable
        entries.append(snapshot.views[position].host_json + tails[number])
    counts = Counter([Reason.UNKNOWN_NODE] * len(unknown))
    for number, n_nodes in enumerate(np.bincount(asked.state_ids).tolist()):
        if n_nodes:
            counts[reasons[number]] += n_nodes
    main = max(counts, key=lambda reason: (counts[reason], reason.name), default=None)
    return Filtered((), failed, unresolvable, 0, main)


def _pod_hash(request: PodRequest) -> int:
    identity = (request.uid or request.full_name).encode()
    return int.from_bytes(blake2b(identity, digest_size=8).digest())
