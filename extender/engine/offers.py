"""The sets that a node offers a pod, as JSON: each container's, and the set that comes second.

It shows what the verbs' own choice is (`extender.placement.Rater.choose`) and what decided between
two sets (`topology.select.find_runner_up`); it chooses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.select import Criterion, Selected, find_runner_up, select_set
from topology.value import Limit, gpus_of

if TYPE_CHECKING:
    from extender.engine.blocking_pods import BlockingPods
    from extender.engine.explanation import (
        BlockedOffer,
        ContainerSet,
        OfferFigures,
        SecondSet,
        SharedUplink,
    )
    from extender.protocol import PodRequest
    from extender.snapshot import NodeView
    from topology.select import PodFit, RunnerUp

__all__ = ["blocked_offer_json", "containers_json", "offer_json", "other_set", "set_json"]

_LOST: dict[Criterion, str] = {
    Criterion.AFFINITY: "it misses the affinity",
    Criterion.NIC: "it has no RDMA NIC within PXB",
    Criterion.VALUE_CLASS: "it is slower: {other:.1f} against {own:.1f} GB/s",
    Criterion.CLASS_SUM: "its class sum is {figures[1]:.1f} against {figures[0]:.1f}",
    Criterion.CLOSENESS: "its GPUs are further from each other on PCIe",
    Criterion.REMAINDER: (
        "taking it costs later pods more: {figures[1]:.2f} against {figures[0]:.2f} GPU-equivalents"
    ),
    Criterion.RAW_SUM: (
        "its measured figures sum up to {figures[1]:.1f} against {figures[0]:.1f} GB/s"
    ),
    Criterion.VALUE: "it is slower: {other:.1f} against {own:.1f} GB/s",
    Criterion.PACKING: "it fills other groups of GPUs; equal in all else",
    Criterion.INDICES: "it is equal in all else, and the lowest indices are taken",
}
_BETTER: dict[Criterion, str] = _LOST | {
    Criterion.AFFINITY: "it has the affinity, which the pod's set misses",
    Criterion.NIC: "it has an RDMA NIC within PXB, which the pod's set lacks",
    Criterion.VALUE_CLASS: "it is faster: {other:.1f} against {own:.1f} GB/s",
    Criterion.CLOSENESS: "its GPUs are closer to each other on PCIe",
    Criterion.REMAINDER: (
        "taking it costs later pods less: {figures[1]:.2f} against {figures[0]:.2f} GPU-equivalents"
    ),
    Criterion.VALUE: "it is faster: {other:.1f} against {own:.1f} GB/s",
    Criterion.INDICES: "it is equal in all else, with the lowest indices",
}
"""Of a set that would be chosen before the one that the pod has."""


def blocked_offer_json(blocking: BlockingPods) -> BlockedOffer:
    """The node with what it would offer, and the pods whose end makes room there."""
    return {
        "node": blocking.view.name,
        "when_ended": list(blocking.pods),
        "gpus_freed": blocking.n_gpus,
        **offer_json(blocking.view, blocking.fit),
    }


def offer_json(view: NodeView, fit: PodFit | None) -> OfferFigures:
    """The GPUs, and GB/s and share of the slowest container of two or more; null without."""
    if fit is None:
        return {"gpus": None, "gbytes_per_s": None, "share": None}
    sets = [one for _, one in fit.containers if len(one.gpus) > 1]
    worst = min(sets, key=lambda one: one.value_gbytes_per_s, default=None)
    return {
        "gpus": [gpu for gpu in range(len(view.ids)) if fit.used >> gpu & 1],
        "gbytes_per_s": None if worst is None else round(worst.value_gbytes_per_s, 3),
        "share": None if worst is None else round(1 - worst.loss, 4),
    }


def containers_json(
    request: PodRequest, view: NodeView, fit: PodFit | None
) -> list[ContainerSet] | None:
    """The sets; None where the topology is unknown and the kubelet chooses."""
    if fit is None:
        return None
    by_position = dict(fit.containers)
    return [
        set_json(name, view, by_position[str(i)], fit.used)
        for i, name in enumerate(request.containers)
    ]


def set_json(name: str, view: NodeView, selected: Selected, used: int) -> ContainerSet:
    """A container's set and what it is worth; `used` are all GPUs of the pod."""
    return {
        "name": name,
        "gpus": list(selected.gpus),
        "ids": [view.ids[gpu] for gpu in selected.gpus],
        "gbytes_per_s": round(selected.value_gbytes_per_s, 3),
        "loss": round(selected.loss, 4),
        "satisfies_affinity": selected.satisfies_affinity,
        "limited_by": selected.limit.name.lower(),
        "shared_uplinks": _shared_uplinks(view, selected, used),
    }


def _shared_uplinks(view: NodeView, selected: Selected, used: int) -> list[SharedUplink]:
    """PCIe switches whose uplink the set shares with GPUs in use; its value assumes them idle."""
    machine = view.node_class.machine
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


def other_set(request: PodRequest, view: NodeView, chosen: int) -> SecondSet | None:
    """The best set of the free GPUs other than the chosen one, and why it is not that one.

    `view` has the chosen GPUs free as well. None where the pod's GPUs are in several containers,
    which are chosen together, where the kubelet confines sets, where the topology is unknown, where
    no other set fits, and above 16 GPUs where another set than the chosen one would be best now.
    """
    shape, machine = request.shape, view.node_class.machine
    if (
        shape is None
        or len(shape.requests) != 1
        or machine is None
        or view.node_class.manager is not None
    ):
        return None
    found = find_runner_up(
        machine.selector,
        available=view.free,
        size=shape.requests[0].size,
        policy=shape.policy,
        chosen=chosen,
    )
    if found is None:
        return None
    other, own = (
        select_set(machine.selector, available=mask, size=mask.bit_count())
        for mask in (sum(1 << gpu for gpu in found.gpus), chosen)
    )
    if not (isinstance(other, Selected) and isinstance(own, Selected)):
        return None
    is_joined = len(other.gpus) > 1
    return {
        "node": view.name,
        "container": request.containers[0],
        "gpus": list(other.gpus),
        "ids": [view.ids[gpu] for gpu in other.gpus],
        "gbytes_per_s": round(other.value_gbytes_per_s, 3) if is_joined else None,
        "share": round(1 - other.loss, 4) if is_joined else None,
        "limited_by": other.limit.name.lower(),
        "is_better": found.is_better,
        "decided_by": found.decided_by.value,
        "why": _why(found, own, other),
    }


def _why(found: RunnerUp, own: Selected, other: Selected) -> str:
    sentences = _BETTER if found.is_better else _LOST
    return sentences[found.decided_by].format(
        own=own.value_gbytes_per_s, other=other.value_gbytes_per_s, figures=found.figures
    )
