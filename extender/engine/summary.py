"""What an explanation comes down to: how many nodes fit, why the others do not, what would help.

For a pod that fits nowhere: the reasons with the number of their nodes, the pods whose end would
make room (`extender.engine.blocking_pods`), and the least change of its own annotations with which
it would fit now. For one that fits: the node that comes second, the set that comes second on the
first node, and what decided. It shows what the verbs' own ratings say, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from extender.engine.blocking_pods import find_blocking_pods
from extender.engine.offers import blocked_offer_json, containers_json, offer_json, other_set
from extender.placement import Rank, Refusal
from extender.protocol import MAY_PASS
from topology.annotations import Affinity, NicRule, Strength, pod_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from extender.engine.explanation import (
        ChangeOffer,
        ReasonGroup,
        SecondNode,
        SecondSet,
        Summary,
    )
    from extender.placement import Rater
    from extender.protocol import PodRequest, Reason, Shape
    from extender.snapshot import NodeView, Overlay
    from topology.annotations import PlacementPolicy

__all__ = ["Ratings", "summarize"]

SHOWN_MACHINES = 3
"""Machine types that a reason names."""


@dataclass(frozen=True, slots=True)
class Ratings:
    """The nodes that kube-scheduler may offer for the pod, their ratings by state, and the others.

    `excluded` has these by reason.
    """

    views: Sequence[NodeView]
    by_state: Mapping[int, Rank | Refusal]
    excluded: Mapping[Reason, Sequence[NodeView]] = field(
        default_factory=dict["Reason", "Sequence[NodeView]"]
    )


def summarize(
    request: PodRequest,
    rated: Ratings,
    overlay: Callable[[NodeView], Overlay],
    rater: Rater,
) -> Summary:
    """The summary of a pod with GPUs.

    `overlay` gives a view's node, its pods by name. Complexity: at most
    `extender.engine.blocking_pods.MAX_TRIES` selections for each reason, and one rating per state
    and change that is tried.
    """
    ranks = {state: one for state, one in rated.by_state.items() if isinstance(one, Rank)}
    fitting = [view for view in rated.views if view.state in ranks]
    best = sorted(fitting, key=lambda one: (ranks[one.state].key, one.name))[:2]
    return {
        "n_nodes": len(rated.views) + sum(map(len, rated.excluded.values())),
        "n_fit": len(fitting),
        "groups": [
            _group(request, reason, views, overlay, rater) for reason, views in _by_reason(rated)
        ],
        "try": None if fitting else _try(request, rated.views, rater),
        "runner_up": _runner_up(request, best, ranks, rater),
        "runner_up_set": _runner_up_set(request, best, rater),
    }


def _by_reason(rated: Ratings) -> list[tuple[Reason, list[NodeView]]]:
    """The nodes that do not fit by reason, most nodes first."""
    groups = {reason: list(views) for reason, views in rated.excluded.items()}
    for view in rated.views:
        rating = rated.by_state[view.state]
        if isinstance(rating, Refusal):
            groups.setdefault(rating.reason, []).append(view)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0].label))


def _group(
    request: PodRequest,
    reason: Reason,
    views: Sequence[NodeView],
    overlay: Callable[[NodeView], Overlay],
    rater: Rater,
) -> ReasonGroup:
    blocking = find_blocking_pods(request, views, overlay, rater) if reason in MAY_PASS else None
    machines = sorted({view.node_class.name for view in views})
    named = ", ".join(machines[:SHOWN_MACHINES])
    more = len(machines) - SHOWN_MACHINES
    return {
        "reason": reason.value,
        "reason_label": reason.label,
        "reason_short": reason.short(request.shape),
        "lacks": reason.lacks(request),
        "sentence": f"{reason.value} ({named}{f' and {more} more' if more > 0 else ''})",
        "n": len(views),
        "nearest": None if blocking is None else blocked_offer_json(blocking),
    }


def _try(request: PodRequest, views: Sequence[NodeView], rater: Rater) -> ChangeOffer | None:
    """The least change of the pod's annotations with which it fits on some node now."""
    if request.shape is None:
        return None
    by_state = {view.state: view for view in views}
    for change, policy in _weaker(request.shape):
        changed = replace(request, shape=replace(request.shape, policy=policy))
        ratings = rater.rate(changed, by_state.values())
        ranks = {
            state: one
            for state, one in zip(by_state, ratings, strict=True)
            if isinstance(one, Rank)
        }
        fitting = [view for view in views if view.state in ranks]
        if fitting:
            view = min(fitting, key=lambda one: (ranks[one.state].key, one.name))
            fit = rater.choose(changed, view)
            if not isinstance(fit, Refusal):
                return {"change": change, "node": view.name, **offer_json(view, fit)}
    return None


def _weaker(shape: Shape) -> Iterator[tuple[str, PlacementPolicy]]:
    """Changes of the annotations that require less, each alone and then all together."""
    policy = shape.policy
    texts: list[str] = []
    weakest = policy
    if policy.strength is Strength.REQUIRED and policy.affinity is not Affinity.ANY:
        texts.append(f"{pod_keys.POLICY}={Strength.PREFERRED.value}")
        weakest = replace(weakest, strength=Strength.PREFERRED)
        yield texts[-1], replace(policy, strength=Strength.PREFERRED)
    if policy.min_bandwidth_gbytes_per_s is not None:
        texts.append(f"without {pod_keys.MIN_BANDWIDTH}")
        weakest = replace(weakest, min_bandwidth_gbytes_per_s=None)
        yield texts[-1], replace(policy, min_bandwidth_gbytes_per_s=None)
    if policy.nic is NicRule.REQUIRED:
        texts.append(f"{pod_keys.NIC}={NicRule.PREFERRED.value}")
        weakest = replace(weakest, nic=NicRule.PREFERRED)
        yield texts[-1], replace(policy, nic=NicRule.PREFERRED)
    if len(texts) > 1:
        yield " and ".join(texts), weakest


def _runner_up(
    request: PodRequest, best: Sequence[NodeView], ranks: Mapping[int, Rank], rater: Rater
) -> SecondNode | None:
    """The node that comes second, and the first difference to the best in the order of nodes."""
    if len(best) < 2:  # noqa: PLR2004 - the best and another
        return None
    first, second = best
    fit = rater.choose(request, second)
    if isinstance(fit, Refusal):
        return None
    return {
        "node": second.name,
        **offer_json(second, fit),
        "containers": containers_json(request, second, fit),
        "why": _why(ranks[first.state], ranks[second.state]),
    }


def _runner_up_set(request: PodRequest, best: Sequence[NodeView], rater: Rater) -> SecondSet | None:
    """The set that comes second on the best node."""
    if not best:
        return None
    fit = rater.choose(request, best[0])
    if fit is None or isinstance(fit, Refusal):
        return None
    return other_set(request, best[0], fit.used)


def _why(best: Rank, second: Rank) -> str:
    if best.key == second.key:
        return "equal for the pod; the first by name is shown first"
    if best.step != second.step:
        if not second.step:
            return "its topology is unknown"
        is_missed = best.step[:1] != second.step[:1]
        return "it misses a stated wish" if is_missed else "its set is further from its best"
    if best.key[2] != second.key[2]:
        return "its set is slower"
    if best.key[3] != second.key[3]:
        return "taking its set costs later pods more"
    return "it has more GPUs free, which are kept together"
