"""The pods that a drain evicts, and what each of them requests, as far as the state knows.

In full where the pod went through filter lately; else by the containers of its plan, without its
annotations; else by the number of its devices. Its nodeSelector and node affinity are known where
filter saw it, where it was bound here, or where it was read in full: pods that have a node are
watched as metadata. What was assumed is said with each pod. It evicts nothing, and reads no pod.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from extender.protocol import PodRequest, Shape
from extender.state import AssignmentState
from extender.what_if.request import RequestedPod
from topology.annotations import DEFAULT_POLICY, GroupWish
from topology.node_affinity import ANY_NODE
from topology.select import ContainerRequest, ContainerRole, pod_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from extender.state import Account, NodeResource, PodRecord, StateMoment
    from topology.annotations import Plan

__all__ = ["evicted_pods"]

BY_PLAN = (
    "the pod's containers are those of its plan; its annotations are not known any more, so it is "
    "placed as one without any"
)
BY_DEVICES = (
    "only the number of the pod's devices is known, so it is placed as one container without "
    "annotations"
)
KEPT = "the pod is as filter saw it last"
ANY_SELECTOR = (
    "; its nodeSelector and node affinity are not known either, so it goes there only if these "
    "allow it"
)
UNKNOWN = "it is not known what the pod requests, so it is not placed again"


def evicted_pods(
    moment: StateMoment,
    drained: Sequence[str],
    *,
    pod: Callable[[str], PodRecord | None],
    recall: Callable[[str, str], PodRequest | None],
    now: Callable[[str, PodRecord], float | None],
) -> list[RequestedPod]:
    """The pods with devices of these nodes, the highest priority first, then by name.

    `pod` gives the record of a uid, `recall` what the pod of a uid and name requested in its last
    filter call, where that is kept, `now` the GB/s that a pod has on a node, None if unknown. A
    nomination is no pod there yet.
    """
    found: dict[str, RequestedPod] = {}
    for name in drained:
        node = moment.nodes[name]
        for served, account in zip(node.resources, moment.accounts[name], strict=True):
            for uid in _uids(account):
                if uid not in found:
                    record = pod(uid)
                    one = _evicted(uid, record, recall, served, account)
                    rate = None if record is None else now(name, record)
                    found[uid] = replace(one, now_gbytes_per_s=rate)
    return sorted(found.values(), key=_order)


def _order(pod: RequestedPod) -> tuple[int, str]:
    return 0 if pod.request is None else -pod.request.priority, pod.full_name


def _uids(account: Account) -> dict[str, None]:
    """The pods with devices there, or that should have some; each once."""
    assigned = account.assignments.items()
    uids = dict.fromkeys(uid for uid, one in assigned if one.state is not AssignmentState.CLAIMED)
    return uids | dict.fromkeys((*account.devices_unknown, *account.contested, *account.removed))


def _evicted(
    uid: str,
    record: PodRecord | None,
    recall: Callable[[str, str], PodRequest | None],
    served: NodeResource,
    account: Account,
) -> RequestedPod:
    if record is None:
        # A hold of a pod that no watch has shown: its uid is all that there is.
        namespace, name = "", uid.partition("@")[0]
    else:
        namespace, name = record.namespace, record.name
    full_name = f"{namespace}/{name}".removeprefix("/")
    kept = recall(uid, full_name)
    if kept is not None and kept.shape is not None:
        # The pod that a controller makes in its place is another one.
        request = replace(kept, uid="", nominated_node=None)
        return RequestedPod(full_name, request, is_evicted=True, assumed=KEPT)
    plan = None if record is None else record.node_plan
    if plan is not None and plan.containers:
        names, requests = _planned(plan)
        resource, assumed = plan.containers[0].resource, BY_PLAN
    else:
        n_devices = _n_devices(uid, account)
        if not n_devices:
            return RequestedPod(
                full_name, None, is_evicted=True, assumed=UNKNOWN, is_selector_known=False
            )
        names, requests = ("main",), (ContainerRequest("0", n_devices),)
        resource, assumed = served.name, BY_DEVICES
    affinity = None if record is None else record.node_affinity
    if affinity is None:
        assumed += ANY_SELECTOR
    request = PodRequest(
        "",
        namespace,
        name,
        Shape(resource, requests, DEFAULT_POLICY),
        containers=names,
        size_gpus=pod_size(requests),
        priority=0 if plan is None else plan.priority,
        is_managed=True,
        group=None if plan is None or plan.group is None else GroupWish(plan.group.name),
        node_affinity=ANY_NODE if affinity is None else affinity,
    )
    return RequestedPod(
        full_name,
        request,
        is_evicted=True,
        assumed=assumed,
        is_selector_known=affinity is not None,
    )


def _planned(plan: Plan) -> tuple[tuple[str, ...], tuple[ContainerRequest, ...]]:
    """The containers of a plan; one that shares devices with a later one is an init container."""
    requests: list[ContainerRequest] = []
    for i, one in enumerate(plan.containers):
        later = {id_ for other in plan.containers[i + 1 :] for id_ in other.ids}
        is_init = not later.isdisjoint(one.ids)
        role = ContainerRole.INIT if is_init else ContainerRole.APP
        requests.append(ContainerRequest(str(i), len(one.ids), role))
    return tuple(one.name for one in plan.containers), tuple(requests)


def _n_devices(uid: str, account: Account) -> int:
    assigned = account.assignments.get(uid)
    n_assigned = 0 if assigned is None else assigned.mask.bit_count()
    n_contested = account.contested.get(uid, 0).bit_count()
    return n_assigned + n_contested + len(account.removed.get(uid, ()))
