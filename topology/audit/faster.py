"""Pods that may be on faster GPUs than they use.

What it answers: which pods could run on GPUs of lesser worth that are free now, by what their own
specs say. They are candidates to look at, not errors: nothing here knows how much memory or
compute a pod needs, nor the CPU and memory that are free elsewhere.

A pod is a candidate where all of this holds:

- it has whole GPUs of its node's resource and of no other, and no DaemonSet or node owns it;
- it gains nothing from links: each of its containers has one GPU, or its affinity is `none`;
- a GPU elsewhere is worth less (`topology.model.gpu_worth`; at least `LEAST_STEP` less), or the
  same while links join only the GPUs where the pod is; worths of unknown models do not count;
- a node with such GPUs offers them as the same resource, takes pods and has enough of them free,
  and the pod's node selector, required node affinity and tolerations allow it there: a pod that
  names its GPU model is no candidate.

Pods that are not judged are for the caller to leave out: what they have is not known to be GPUs.

A free GPU is counted for one pod only, so that all candidates could move at once: those on the GPUs
of most worth first, then by namespace and name. They get the node with GPUs of the least worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.audit.cluster.constraints import allows
from topology.audit.values import FasterCandidate
from topology.model import names, node_worth, parse_worth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.audit.cluster.constraints import NodeRules
    from topology.audit.cluster.holdings import NodeHoldings
    from topology.audit.cluster.objects import AuditPod

__all__ = ["MAX_RULES", "find_faster_candidates"]

LEAST_STEP = 0.1
"""Share by which a GPU must be worth less: closer ones are the same to their users."""
MAX_RULES = 256
"""Different sets of rules that are compared with all nodes; pods with further ones are left out."""
_NO_AFFINITY = "none"


@dataclass(slots=True)
class _Place:
    """A node with free GPUs; `n_free` is what is left of them for further pods."""

    holdings: NodeHoldings
    worth: float
    is_linked: bool
    n_free: int


def find_faster_candidates(
    nodes: Sequence[NodeHoldings], pods: Iterable[tuple[AuditPod, NodeHoldings]]
) -> tuple[FasterCandidate, ...]:
    """Find the candidates among pods and the nodes that they are on.

    O(rules x nodes + pods x nodes that fill up); rules are at most `MAX_RULES`.
    """
    known = {one.node.name: place for one in nodes if (place := _place(one)) is not None}
    places = sorted(
        (place for place in known.values() if place.n_free),
        key=lambda place: (place.worth, place.is_linked, place.holdings.node.name),
    )
    movable = [
        (pod, known[pod.node])
        for pod, holdings in pods
        if holdings.node.name in known and _can_move(pod, holdings.resource)
    ]
    movable.sort(key=lambda one: (-one[1].worth, one[0].namespace, one[0].name))
    allowed: dict[tuple[NodeRules, str], list[_Place]] = {}
    found: list[FasterCandidate] = []
    for pod, here in movable:
        key = (pod.rules, here.holdings.resource)
        if key not in allowed:
            if len(allowed) >= MAX_RULES:
                continue
            allowed[key] = [one for one in places if _is_allowed(*key, one)]
        n_gpus = _n_gpus(pod)
        there = _first_fitting(allowed[key], here, n_gpus)
        if there is not None:
            there.n_free -= n_gpus
            found.append(_candidate(pod, here, there, n_gpus))
    return tuple(found)


def _place(holdings: NodeHoldings) -> _Place | None:
    """What a node offers; None where the worth of its GPUs is not known."""
    topology = holdings.topology
    if topology is None:
        return None
    known = node_worth(topology.gpus)
    text = holdings.node.labels.get(names.WORTH)
    given = None if text is None else parse_worth(text)
    if given is None and known.unknown_models:
        return None
    worth = known.per_device if given is None else given * known.gpus_per_device
    is_linked = any(link.is_up for row in topology.links for link in row)
    free = (holdings.free or 0) & ~holdings.parts if holdings.node.takes_pods else 0
    return _Place(holdings, worth, is_linked, free.bit_count())


def _can_move(pod: AuditPod, resource: str) -> bool:
    if pod.stays_with_node or any(set(one.requests) != {resource} for one in pod.containers):
        return False
    sizes = [one.n_gpus(resource) for one in pod.containers]
    return pod.affinity == _NO_AFFINITY or max(sizes) == 1


def _n_gpus(pod: AuditPod) -> int:
    """GPUs that the pod needs at most at once, init containers counted in full."""
    return sum(count for one in pod.containers for count in one.requests.values())


def _is_allowed(rules: NodeRules, resource: str, place: _Place) -> bool:
    node = place.holdings.node
    if place.holdings.resource != resource:
        return False
    return allows(rules, name=node.name, labels=node.labels, taints=node.taints)


def _first_fitting(places: list[_Place], here: _Place, n_gpus: int) -> _Place | None:
    """The first place with lesser GPUs and enough of them; full ones in front are dropped."""
    while places and not places[0].n_free:
        del places[0]
    for one in places:
        if not _is_lesser(one, here):
            return None
        if one.n_free >= n_gpus:
            return one
    return None


def _is_lesser(one: _Place, here: _Place) -> bool:
    if one.worth <= here.worth * (1 - LEAST_STEP):
        return True
    return one.worth == here.worth and here.is_linked and not one.is_linked


def _candidate(pod: AuditPod, here: _Place, there: _Place, n_gpus: int) -> FasterCandidate:
    return FasterCandidate(
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
        machine=here.holdings.digest,
        n_gpus=n_gpus,
        worth_per_gpu=round(here.worth, 3),
        other_node=there.holdings.node.name,
        other_machine=there.holdings.digest,
        other_worth_per_gpu=round(there.worth, 3),
    )
