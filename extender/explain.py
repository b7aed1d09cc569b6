"""Why this node, why this set, why not that one.

What it answers: for one pod, every node of the cluster in the order of preference: the best set
there with its GB/s and loss, what would be left behind, or why not. It uses the verbs' own ratings,
so it tells what filter and prioritize would have said at that moment; it changes nothing.

The order is total: rank, then node name. Nodes that cannot take the pod come last, by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from extender.compare import scores
from extender.rating import Rating
from topology.masks import gpus_of
from topology.outcome import Selected
from topology.select import select_set
from topology.value import Limit

if TYPE_CHECKING:
    from extender.rating import Rater, Refusal
    from extender.request import PodRequest
    from extender.snapshot import ClusterSnapshot, NodeView
    from topology.fit import PodFit
    from topology.select import Machine

__all__ = ["Json", "explain_pod"]

Json: TypeAlias = "dict[str, object]"

LEFT_SIZES = (2, 4, 8)
"""Set sizes whose best remaining value is told."""


def explain_pod(request: PodRequest, snapshot: ClusterSnapshot, *, rater: Rater) -> Json:
    """Explain a pod on every node of the snapshot, as JSON values.

    Complexity: one rating and a few selections per distinct node state.
    """
    told: Json = {
        "pod": request.full_name,
        "uid": request.uid,
        "generation": snapshot.generation,
        "warnings": list(request.warnings),
    }
    if request.shape is None:
        told["request"] = None
        told["nodes"] = ()
        return told
    policy = request.shape.policy
    told["request"] = {
        "resource": request.shape.resource,
        "size_gpus": request.size_gpus,
        "containers": [
            {"name": name, "size": one.size, "role": one.role.name.lower()}
            for name, one in zip(request.containers, request.shape.requests, strict=True)
        ],
        "affinity": policy.affinity.value,
        "policy": policy.strength.value,
        "min_bandwidth_gbytes_per_s": policy.min_bandwidth_gbytes_per_s,
        "prefer": policy.prefer.value,
        "nic": policy.nic.value,
    }
    told["nodes"] = _nodes(request, snapshot, rater)
    return told


def _nodes(request: PodRequest, snapshot: ClusterSnapshot, rater: Rater) -> list[Json]:
    by_state = {view.state: view for view in snapshot.views}
    ratings = dict(zip(by_state, rater.rate(request, by_state.values()), strict=True))
    ranks = {state: one.rank for state, one in ratings.items() if isinstance(one, Rating)}
    score = scores(ranks, request.size_gpus)
    left = {
        state: _left_behind(by_state[state], one)
        for state, one in ratings.items()
        if isinstance(one, Rating)
    }

    def place(view: NodeView) -> tuple[bool, object, str]:
        rank = ranks.get(view.state)
        return rank is None, rank.key if rank else (), view.name

    nodes: list[Json] = []
    for position, view in enumerate(sorted(snapshot.views, key=place), 1):
        told: Json = {
            "node": view.name,
            "zone": view.zone,
            "machine": view.kind.name,
            "free_gpus": view.free.bit_count(),
        }
        rating = ratings[view.state]
        if isinstance(rating, Rating):
            told |= {"fits": True, "place": position, "score": score[view.state]}
            told["containers"] = _containers(request, view, rating.fit)
            told["left_behind"] = left[view.state]
        else:
            told |= _refusal(rating)
        nodes.append(told)
    return nodes


def _refusal(refusal: Refusal) -> Json:
    return {
        "fits": False,
        "reason": refusal.reason.value,
        "reason_label": refusal.reason.label,
        "detail": refusal.detail,
    }


def _containers(request: PodRequest, view: NodeView, fit: PodFit | None) -> list[Json] | None:
    """The sets; None where the topology is unknown and the kubelet chooses."""
    if fit is None:
        return None
    by_position = dict(fit.containers)
    return [
        {"name": name} | _set(view, by_position[str(i)], fit.used)
        for i, name in enumerate(request.containers)
    ]


def _set(view: NodeView, selected: Selected, used: int) -> Json:
    return {
        "gpus": list(selected.gpus),
        "ids": [view.ids[gpu] for gpu in selected.gpus],
        "gbytes_per_s": round(selected.value_gbytes_per_s, 3),
        "loss": round(selected.loss, 4),
        "satisfies_affinity": selected.satisfies_affinity,
        "limited_by": selected.limit.name.lower(),
        "shared_uplinks": _shared_uplinks(view, selected, used),
    }


def _shared_uplinks(view: NodeView, selected: Selected, used: int) -> list[Json]:
    """PCIe switches whose uplink the set shares with GPUs in use; its value assumes them idle."""
    machine = view.kind.machine
    if machine is None or selected.limit not in _OVER_PCIE:
        return []
    capacities = machine.selector.capacities
    busy = machine.selector.all_gpus & ~view.free & ~used
    return [
        {"switch_gpus": list(gpus_of(group)), "busy_gpus": list(gpus_of(group & busy))}
        for group, _ in capacities.switch_groups
        if group & selected.mask
        and group & busy
        # Inside one switch the uplink carries nothing, unless traffic goes through host memory.
        and (selected.mask & ~group or not capacities.is_p2p)
    ]


_OVER_PCIE = frozenset({Limit.PORT, Limit.UPLINK, Limit.SOCKET})


def _left_behind(view: NodeView, rating: Rating) -> Json | None:
    """What the node could still offer afterwards; None where its topology is unknown."""
    machine = view.kind.machine
    if machine is None or rating.fit is None:
        return None
    after = view.free & ~rating.fit.used
    return {
        "free_gpus": after.bit_count(),
        "remainder_cost_gpus": round(rating.rank.remainder_cost_gpus, 4),
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
