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

from extender.placement.candidates import sample_candidates
from extender.placement.node_order import TOP_SCORE, Rank, scores
from extender.placement.rating import Refusal
from extender.protocol import MAY_PASS, TAKEN, Reason, reason_tail, score_head, score_tail
from topology.annotations import ContainerPlan, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from extender.placement.rating import Rater, RatingBudget
    from extender.protocol import PodRequest
    from extender.rules import Rules
    from extender.snapshot import ClusterSnapshot, NodeIndex, NodeView, RequestedNodes
    from topology.select import PodFit

__all__ = [
    "Filtered",
    "filter_nodes",
    "plan_bind",
    "plan_fit",
    "prioritize_nodes",
    "refuse_nodes",
    "score_nodes",
]

_TAILS = tuple(score_tail(score) for score in range(TOP_SCORE + 1))


@dataclass(frozen=True, slots=True)
class Filtered:
    """Answer of filter. `names_json` are node names as JSON strings, `positions` theirs, int64.

    `failed_json` and `unresolvable_json` are members of the failed maps, empty where any passed.
    `n_feasible` counts the nodes that could take the pod, `names_json` lists those that are
    named. `main_reason` is the most frequent refusal where none could, of those that may pass if
    there are any, else None.
    """

    names_json: Sequence[str]
    positions: NDArray[np.int64]
    failed_json: Sequence[str] = ()
    unresolvable_json: Sequence[str] = ()
    n_feasible: int = 0
    main_reason: Reason | None = None


def filter_nodes(  # noqa: PLR0913 - what a choice depends on
    request: PodRequest,
    requested: RequestedNodes,
    snapshot: ClusterSnapshot,
    *,
    rater: Rater,
    rules: Rules,
    budget: RatingBudget | None = None,
    free_capacity: NDArray[np.int64] | None = None,
) -> Filtered:
    """Name the nodes that can take the pod, at most `rules.candidate_limit` (0: all) of the best.

    The pod requests GPUs. All feasible nodes are named, in request order, where kube-scheduler
    scores nodes by something not visible here: preferred terms of the pod. Without a `budget` every
    state is rated. `free_capacity` is that of `extender.placement.domain_free_capacity`.
    """
    positions, numbers = requested.positions, snapshot.state_ids[requested.positions]
    ratings, ranks = _rate(request, numbers, snapshot, rater, budget)
    if not ranks:
        curable = TAKEN if rules.preempts_for_topology else frozenset[Reason]()
        return _refuse_all(request, requested, snapshot, ratings, curable=curable)
    if len(ranks) < len(ratings):
        fits = np.zeros(len(snapshot.state_numbers), dtype=np.bool_)
        fits[list(ranks)] = True
        is_fitting = fits[numbers]
        positions, numbers = positions[is_fitting], numbers[is_fitting]
    n_feasible = len(positions)
    may_thin = rules.candidate_limit > 0 and not request.has_soft_wishes
    if may_thin and n_feasible > rules.candidate_limit:
        places = _places(ranks, len(snapshot.state_numbers))[numbers]
        if free_capacity is not None:
            places = _by_free_capacity(places, free_capacity[positions])
        positions = sample_candidates(
            snapshot.node_index,
            positions,
            places,
            limit=rules.candidate_limit,
            pod_hash=_pod_hash(request),
        )
    named: list[int] = positions.tolist()
    names_json = snapshot.node_index.names_json
    return Filtered([names_json[i] for i in named], positions, n_feasible=n_feasible)


def refuse_nodes(requested: RequestedNodes, node_index: NodeIndex, reason: Reason) -> Filtered:
    """The same reason for every node, for what is not about nodes; no eviction helps."""
    tail = reason_tail(reason.value)
    positions: list[int] = requested.positions.tolist()
    refused = [node_index.names_json[i] + tail for i in positions]
    refused += [json.dumps(name) + tail for _, name in requested.unknown]
    return Filtered((), requested.positions[:0], (), refused, 0, reason)


def prioritize_nodes(  # noqa: PLR0913 - what scores depend on
    request: PodRequest,
    requested: RequestedNodes,
    snapshot: ClusterSnapshot,
    *,
    rater: Rater,
    budget: RatingBudget | None = None,
    free_capacity: NDArray[np.int64] | None = None,
) -> list[str]:
    """Score every requested node, 0..10, as JSON entries; the pod requests GPUs.

    Nodes that cannot take the pod (any more) and unknown nodes score 0; the latter come last.
    """
    positions = requested.positions
    by_position = score_nodes(
        request, positions, snapshot, rater=rater, budget=budget, free_capacity=free_capacity
    )
    heads = snapshot.node_index.score_heads
    where: list[int] = positions.tolist()
    entries = [heads[i] + _TAILS[score] for i, score in zip(where, by_position, strict=True)]
    return entries + [score_head(name) + _TAILS[0] for _, name in requested.unknown]


def score_nodes(  # noqa: PLR0913 - what scores depend on
    request: PodRequest,
    positions: NDArray[np.int64],
    snapshot: ClusterSnapshot,
    *,
    rater: Rater,
    budget: RatingBudget | None = None,
    free_capacity: NDArray[np.int64] | None = None,
) -> list[int]:
    """Score the nodes at these positions, 0..10, in their order; 0 where one cannot take it.

    `free_capacity` is that of `extender.placement.domain_free_capacity`.
    """
    numbers = snapshot.state_ids[positions]
    _, ranks = _rate(request, numbers, snapshot, rater, budget)
    # Nodes that share a state may differ in their taint: twice the state's number, plus the taint.
    # With free_capacity they differ by it too, in the digits above.
    per_capacity = 2 * len(snapshot.samples)
    packed = 2 * numbers + snapshot.node_index.is_soft_tainted[positions]
    if free_capacity is not None:
        packed += per_capacity * free_capacity[positions]
    keys: list[int] = packed.tolist()
    has_soft_taints = snapshot.node_index.has_soft_taints
    numbers_of = {key: key % per_capacity >> 1 for key in set(keys)}
    by_key = scores(
        {key: ranks[number] for key, number in numbers_of.items() if number in ranks},
        request.size_gpus,
        loss_bounds=rater.loss_bounds,
        has_soft_wishes=request.has_soft_wishes,
        avoided={key for key in numbers_of if key & 1} if has_soft_taints else (),
        free_capacity=None
        if free_capacity is None
        else {key: key // per_capacity for key in numbers_of},
    )
    return [by_key.get(key, 0) for key in keys]


def plan_bind(
    request: PodRequest, view: NodeView, *, rater: Rater, generation: int
) -> Plan | Refusal:
    """Choose the devices for good, from what is free on the node now; the pod requests GPUs."""
    fit = rater.choose(request, view)
    return fit if isinstance(fit, Refusal) else plan_fit(request, view, fit, generation=generation)


def plan_fit(request: PodRequest, view: NodeView, fit: PodFit | None, *, generation: int) -> Plan:
    """The plan of what `Rater.choose` chose on a node."""
    if fit is None:
        ids = view.ids_of(view.free)[: request.size_gpus]
        return Plan(view.name, (), ids, generation, 0.0, request.priority)
    return _plan(request, view, fit, generation)


def _plan(request: PodRequest, view: NodeView, fit: PodFit, generation: int) -> Plan:
    by_position = dict(fit.containers)
    containers: list[ContainerPlan] = []
    for i, name in enumerate(request.containers):
        ids = tuple(map(view.ids.__getitem__, by_position[str(i)].gpus))
        containers.append(ContainerPlan(name, view.node_class.resource, ids))
    speeds = [one.value_gbytes_per_s for _, one in fit.containers if len(one.gpus) > 1]
    used = view.ids_of(fit.used)
    score = min(speeds, default=0.0)
    return Plan(view.name, tuple(containers), used, generation, score, request.priority)


def _rate(
    request: PodRequest,
    numbers: NDArray[np.int64],
    snapshot: ClusterSnapshot,
    rater: Rater,
    budget: RatingBudget | None,
) -> tuple[dict[int, Rank | Refusal], dict[int, Rank]]:
    """Rate each state that occurs once, by its number; and the ranks among the ratings."""
    occurring: list[int] = np.bincount(numbers).nonzero()[0].tolist()
    samples = [snapshot.samples[number] for number in occurring]
    ratings = dict(zip(occurring, rater.rate(request, samples, budget), strict=True))
    return ratings, {number: one for number, one in ratings.items() if isinstance(one, Rank)}


def _places(ranks: Mapping[int, Rank], n_numbers: int) -> NDArray[np.int64]:
    """Place of each state's rank by state number, 0 the best; equal ranks share a place."""
    keys = sorted({rank.key for rank in ranks.values()})
    place_of = {key: place for place, key in enumerate(keys)}
    places = [0] * n_numbers
    for number, rank in ranks.items():
        places[number] = place_of[rank.key]
    return np.array(places, dtype=np.int64)


def _by_free_capacity(
    places: NDArray[np.int64], free_capacity: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The nodes' places where those of equal ones differ by their domains' free_capacity."""
    both = places * (1 + free_capacity.max()) + free_capacity
    finer: NDArray[np.int64] = np.unique(both, return_inverse=True)[1]
    return finer


def _refuse_all(
    request: PodRequest,
    requested: RequestedNodes,
    snapshot: ClusterSnapshot,
    ratings: Mapping[int, Rank | Refusal],
    *,
    curable: frozenset[Reason],
) -> Filtered:
    """Give every node its reason; evictions may end those that are `curable`.

    All others are unresolvable, so that no useless preemption is attempted. On the pod's own
    nominated node they are not, else the pod preempted again while its victims still leave
    (default_preemption.go of 1.36, podEligibleToPreemptOthers).
    """
    numbers = snapshot.state_ids[requested.positions]
    reasons = {n: one.reason for n, one in ratings.items() if isinstance(one, Refusal)}
    tails = {number: reason_tail(reason.value) for number, reason in reasons.items()}
    own = snapshot.positions.get(request.nominated_node or "", -1)
    failed: list[str] = []
    tail = reason_tail(Reason.UNKNOWN_NODE.value)
    unresolvable = [json.dumps(name) + tail for _, name in requested.unknown]
    positions: list[int] = requested.positions.tolist()
    for position, number in zip(positions, numbers.tolist(), strict=True):
        is_resolvable = position == own or reasons[number] in curable
        entries = failed if is_resolvable else unresolvable
        entries.append(snapshot.node_index.names_json[position] + tails[number])
    counts = Counter([Reason.UNKNOWN_NODE] * len(requested.unknown))
    for number, n_nodes in enumerate(np.bincount(numbers).tolist()):
        if n_nodes:
            counts[reasons[number]] += n_nodes
    waits = MAY_PASS & counts.keys()
    main = max(waits or counts, key=lambda reason: (counts[reason], reason.name), default=None)
    return Filtered((), requested.positions[:0], failed, unresolvable, 0, main)


def _pod_hash(request: PodRequest) -> int:
    return crc32((request.uid or request.full_name).encode())
