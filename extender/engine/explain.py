"""Why this node, why this set, why not that one.

For a pod without a node: what it comes down to (`extender.engine.summary`), since when filter has
rejected it, and every node of the cluster in the order of preference, with the best set there, its
GB/s and loss and what would be left behind, or why not. It uses the verbs' own ratings, so it shows
what filter and prioritize would have answered at that moment; a node that kube-scheduler would not
offer does not fit, whatever it has free: one that the pod's nodeSelector or node affinity excludes
(`extender.allowed_nodes`), or that takes no new pod (cordoned, not ready). For a pod that has a
node: its plan, its devices, what those are worth, and what the node would offer it if it were
placed there now. It changes nothing.

The order is total: rank, then the room of the node's network domain, then node name. Nodes that
cannot take the pod come last, by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.allowed_nodes import AllowedNodes, unknown_labels
from extender.engine.explain_group import warn_of_level
from extender.engine.offers import containers_json, other_set, set_json
from extender.engine.summary import Ratings, summarize
from extender.placement import Rank, Refusal, scores
from extender.protocol import Reason
from extender.snapshot import freeing
from extender.state import DeviceState
from topology.annotations import decode_plan
from topology.errors import CodecError, quote
from topology.model import names
from topology.select import Selected, select_set
from topology.taints import Toleration, tolerates_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from extender.engine.explanation import (
        ContainerSet,
        Explanation,
        LeftBehind,
        NodeOffer,
        NodeRefusal,
        RatedNode,
        RequestSummary,
        SecondSet,
        SetOffer,
        SetRefusal,
    )
    from extender.pending import WaitingPod
    from extender.placement import Rater
    from extender.protocol import PodRequest, WirePod
    from extender.rules import Rules
    from extender.snapshot import ClusterSnapshot, NodeView, Overlay
    from extender.state import DeviceRow, LiveCluster, NodeRecord
    from topology.annotations import Plan, Prefer
    from topology.select import Machine, PodFit

__all__ = ["explain_bound", "explain_pod", "warn_of_scheduler"]

LEFT_SIZES = (2, 4, 8)
"""Set sizes whose best remaining value is shown."""


def explain_pod(  # noqa: PLR0913 - all that an explanation is made of
    request: PodRequest,
    cluster: LiveCluster,
    *,
    rater: Rater,
    free_capacity: NDArray[np.int64] | None = None,
    rejected: WaitingPod | None = None,
    tolerations: Sequence[Toleration] = (),
) -> Explanation:
    """Explain a pod on every node of the cluster.

    `free_capacity` is that of `extender.placement.domain_free_capacity`. `tolerations` are the
    pod's.

    Complexity: one rating and a few selections per distinct node state, and what
    `extender.engine.summary.summarize` says.
    """
    snapshot = cluster.snapshot_for(request)
    explanation = _head(request, snapshot, cluster, rater.prefer)
    if rejected is not None:
        explanation["unschedulable"] = {
            "reason": rejected.reason.value,
            "reason_label": rejected.reason.label,
            "since_s": rejected.since_s,
            "last_filtered_s": rejected.seen_s,
            "n_requeues": rejected.n_requeues,
        }
    if request.shape is None:
        explanation["nodes"] = []
        return explanation
    records = cluster.moment().nodes
    rated, not_considered = _rated(request, snapshot, records, tolerations, rater)
    if not_considered:
        explanation["not_considered"] = not_considered

    def overlay(view: NodeView) -> Overlay:
        return cluster.overlay(view).named(cluster.pods.name_of)

    explanation["summary"] = summarize(request, rated, overlay, rater)
    places = [0] * len(snapshot.views) if free_capacity is None else free_capacity.tolist()
    capacity_of = {view.name: place for view, place in zip(snapshot.views, places, strict=True)}
    explanation["nodes"] = _nodes(request, snapshot, rated, rater, capacity_of)
    return explanation


def _rated(
    request: PodRequest,
    snapshot: ClusterSnapshot,
    records: Mapping[str, NodeRecord],
    tolerations: Sequence[Toleration],
    rater: Rater,
) -> tuple[Ratings, list[str]]:
    """The ratings of the nodes that may be offered for the pod, and what is not considered."""
    nodes = AllowedNodes(request.node_affinity, records)
    allowed: list[NodeView] = []
    excluded: dict[Reason, list[NodeView]] = {}
    for view in snapshot.views:
        if not nodes.allows(view):
            excluded.setdefault(Reason.NODE_AFFINITY, []).append(view)
        elif not tolerates_all(tolerations, records[view.name].kubernetes_taints):
            excluded.setdefault(Reason.NODE_UNSCHEDULABLE, []).append(view)
        else:
            allowed.append(view)
    by_state = {view.state: view for view in allowed}
    ratings = dict(zip(by_state, rater.rate(request, by_state.values()), strict=True))
    return Ratings(allowed, ratings, excluded), unknown_labels(nodes.unknown)


def explain_bound(
    request: PodRequest, pod: WirePod, cluster: LiveCluster, *, rater: Rater
) -> Explanation:
    """Explain a pod that has a node, by the snapshot that any other pod would get."""
    snapshot = cluster.snapshot_of(request.resource)
    explanation = _head(request, snapshot, cluster, rater.prefer)
    node = pod.spec.node_name or ""
    text = (pod.metadata.annotations or {}).get(names.PLAN)
    plan, problem = _plan(text)
    view = snapshot.view(node)
    states = () if view is None else cluster.devices(node, view.node_class.resource)
    own = sum(1 << i for i, (_, _, owner) in enumerate(states) if owner == request.uid)
    ids = [one for one, _, owner in states if owner == request.uid]
    explanation["bound"] = {
        "node": node,
        "machine": None if view is None else view.node_class.name,
        "plan": None if text is None else problem or text,
        "devices": [
            {"id": one, "state": state.value}
            for one, state, owner in states
            if owner == request.uid
        ],
        "has_what_was_planned": None if plan is None else set(plan.ids) == set(ids),
        "containers": None if plan is None or view is None else _planned(view, plan),
        "could_have": None if view is None else _could_have(request, view, own, rater),
        "runner_up_set": None if view is None else _beside(request, view, states),
    }
    return explanation


def _beside(request: PodRequest, view: NodeView, states: Sequence[DeviceRow]) -> SecondSet | None:
    """What else the node could give a bound pod; None where a device of it is unhealthy."""
    own = [(i, state) for i, (_, state, owner) in enumerate(states) if owner == request.uid]
    if len(own) != request.size_gpus or not all(state in _HAVE for _, state in own):
        return None
    mask = sum(1 << i for i, _ in own)
    return other_set(request, freeing(view, mask), mask)


_HAVE = frozenset({DeviceState.ASSUMED, DeviceState.BOUND, DeviceState.HELD})
"""Healthy devices of a pod: one that is unhealthy stays so when the pod ends."""


def _plan(text: str | None) -> tuple[Plan | None, str]:
    """The plan, or None and what is wrong with its text."""
    if text is None:
        return None, ""
    try:
        return decode_plan(text), ""
    except CodecError as error:
        return None, str(error)


def _planned(view: NodeView, plan: Plan) -> list[ContainerSet] | None:
    """What the planned sets are worth; None where the node's topology is unknown."""
    machine = view.node_class.machine
    if machine is None or not set(plan.ids) <= set(view.ids):
        return None
    used = view.mask_of(plan.ids)
    containers: list[ContainerSet] = []
    for one in plan.containers:
        selected = select_set(machine.selector, available=view.mask_of(one.ids), size=len(one.ids))
        if isinstance(selected, Selected):
            containers.append(set_json(one.name, view, selected, used))
    return containers


def _could_have(
    request: PodRequest, view: NodeView, own: int, rater: Rater
) -> SetOffer | SetRefusal | None:
    """What the node would offer, were the pod placed there now."""
    if request.shape is None:
        return None
    without = freeing(view, own)
    fit = rater.choose(request, without)
    if isinstance(fit, Refusal):
        return _refusal(fit, request)
    return {"fits": True, "containers": containers_json(request, without, fit)}


def warn_of_scheduler(request: PodRequest, rules: Rules) -> tuple[str, ...]:
    """A warning where a pod with GPUs names a scheduler whose pods are not placed here."""
    name = request.scheduler_name
    if not name or request.shape is None or rules.serves(name):
        return ()
    served = " or ".join(rules.scheduler_names)
    text = (
        f"schedulerName is {quote(name)}, expected {served}: Coterie does not place this pod, its "
        "annotations have no effect, and a bind of it would be refused"
    )
    return (text,)


def _head(
    request: PodRequest, snapshot: ClusterSnapshot, cluster: LiveCluster, prefer: Prefer
) -> Explanation:
    return {
        "pod": request.full_name,
        "uid": request.uid,
        "generation": snapshot.generation,
        "warnings": [*request.warnings, *warn_of_level(request, cluster)],
        "request": _request(request, prefer),
    }


def _request(request: PodRequest, prefer: Prefer) -> RequestSummary | None:
    if request.shape is None:
        return None
    policy = request.shape.policy
    return {
        "resource": request.shape.resource,
        "size_gpus": request.size_gpus,
        "containers": [
            {"name": name, "size": one.size, "role": one.role.name.lower()}
            for name, one in zip(request.containers, request.shape.requests, strict=True)
        ],
        "affinity": policy.affinity.value,
        "policy": policy.strength.value,
        "min_bandwidth_gbytes_per_s": policy.min_bandwidth_gbytes_per_s,
        "prefer": (policy.prefer or prefer).value,
        "nic": policy.nic.value,
    }


def _nodes(
    request: PodRequest,
    snapshot: ClusterSnapshot,
    rated: Ratings,
    rater: Rater,
    capacity_of: Mapping[str, int],
) -> list[NodeOffer | NodeRefusal]:
    by_state = {view.state: view for view in rated.views}
    ranks = {state: one for state, one in rated.by_state.items() if isinstance(one, Rank)}
    excluded = {
        view.name: Refusal(reason) for reason, views in rated.excluded.items() for view in views
    }
    fits = {
        state: fit
        for state in ranks
        if not isinstance(fit := rater.choose(request, by_state[state]), Refusal)
    }
    taints: list[bool] = snapshot.node_index.is_soft_tainted.tolist()
    is_tainted = dict(zip((view.name for view in snapshot.views), taints, strict=True))

    def key_of(view: NodeView) -> tuple[int, bool, int]:
        return view.state, is_tainted[view.name], capacity_of[view.name]

    keys = {key_of(view) for view in rated.views}
    score = scores(
        {key: ranks[key[0]] for key in keys if key[0] in ranks},
        request.size_gpus,
        loss_bounds=rater.loss_bounds,
        has_soft_wishes=request.has_soft_wishes,
        avoided={key for key in keys if key[1]},
        free_capacity={key: key[2] for key in keys},
    )
    left = {
        state: _left_behind(by_state[state], fits[state], rank) for state, rank in ranks.items()
    }

    def rating_of(view: NodeView) -> Rank | Refusal:
        return excluded[view.name] if view.name in excluded else rated.by_state[view.state]

    def place(view: NodeView) -> tuple[bool, object, int, str]:
        rating = rating_of(view)
        if isinstance(rating, Rank):
            return False, rating.key, capacity_of[view.name], view.name
        return True, (), 0, view.name

    nodes: list[NodeOffer | NodeRefusal] = []
    for position, view in enumerate(sorted(snapshot.views, key=place), 1):
        rating, node = rating_of(view), _node(view)
        if isinstance(rating, Refusal):
            nodes.append({**node, **_refusal(rating, request)})
            continue
        nodes.append(
            {
                **node,
                "fits": True,
                "place": position,
                "score": score[key_of(view)],
                "containers": containers_json(request, view, fits[view.state]),
                "left_behind": left[view.state],
            }
        )
    return nodes


def _node(view: NodeView) -> RatedNode:
    node: RatedNode = {
        "node": view.name,
        "zone": view.zone,
        "machine": view.node_class.name,
        "free_gpus": view.free.bit_count(),
        "gpu_worth": round(view.node_class.worth, 4),
    }
    manager = view.node_class.manager
    if manager is not None:
        node["topology_manager"] = {"policy": manager.policy.value, "scope": manager.scope.value}
    return node


def _refusal(refusal: Refusal, request: PodRequest) -> SetRefusal:
    return {
        "fits": False,
        "reason": refusal.reason.value,
        "reason_label": refusal.reason.label,
        "reason_short": refusal.reason.short(request.shape),
        "detail": refusal.detail,
    }


def _left_behind(view: NodeView, fit: PodFit | None, rank: Rank) -> LeftBehind | None:
    """What the node could still offer afterwards; None where its topology is unknown."""
    machine = view.node_class.machine
    if machine is None or fit is None:
        return None
    after = view.free & ~fit.used
    return {
        "free_gpus": after.bit_count(),
        "remainder_cost_gpus": round(rank.remainder_cost_gpus, 4),
        "best_gbytes_per_s": _best_left(machine.selector, after),
    }


def _best_left(selector: Machine, available: int) -> dict[str, float]:
    best: dict[str, float] = {}
    for size in LEFT_SIZES:
        if size <= available.bit_count():
            selected = select_set(selector, available=available, size=size)
            if isinstance(selected, Selected):
                best[str(size)] = round(selected.value_gbytes_per_s, 3)
    return best
