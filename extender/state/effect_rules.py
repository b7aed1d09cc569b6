"""Derives effects from a node's accounts: what is to be read or reported of its pods.

Each effect (`extender.state.effects`) is reported once: the pod's record remembers it. Nothing else
is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.state.effects import Agreement, Mismatch, Missing, PlanConflict
from extender.state.pod_record import PodStage
from topology.annotations import encode_allocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extender.state.accounting import Account
    from extender.state.node_record import NodeRecord
    from extender.state.pod_record import PodRecord
    from extender.state.pods import PodTracker
    from topology.annotations import ContainerPlan

__all__ = ["add_effects"]


def add_effects(pods: PodTracker, node: NodeRecord, accounts: Sequence[Account]) -> None:
    """Add what follows for the pods on a node; `accounts` are those of its resources."""
    in_doubt: set[str] = set()
    given: dict[str, tuple[ContainerPlan, ...]] = {}
    is_named = has_conflict = False
    for served, account in zip(node.resources, accounts, strict=True):
        # Where devices have no names, a reading could not name a pod's either. A pod with removed
        # devices is read too: the kubelet may have given it others in their place.
        if served.machine is not None:
            is_named = True
            in_doubt.update(account.devices_unknown, account.removed)
        if account.contested:
            has_conflict = True
        given |= account.given
    for pod in pods.on_node(node.name):
        is_in_doubt = pod.uid in in_doubt
        if is_in_doubt or pod.has_unknown_devices or pod.was_probed:
            _probe(pods, pod, is_in_doubt=is_in_doubt)
        if has_conflict or pod.contested:
            _report_conflict(pods, node, accounts, pod)
        if pod.plan is not None and (pod.reported is not None or pod.uid in given):
            _report_mismatch(pods, node, pod, given.get(pod.uid), is_named=is_named)
        if node.report.missing or pod.missing:
            _report_missing(pods, node, pod)


def _probe(pods: PodTracker, pod: PodRecord, *, is_in_doubt: bool) -> None:
    pod.has_unknown_devices = is_in_doubt
    if not is_in_doubt:
        pod.was_probed = False
    elif not pod.was_probed and pod.stage is PodStage.SEEN:
        pods.probe(pod)


def _report_conflict(
    pods: PodTracker,
    node: NodeRecord,
    accounts: Sequence[Account],
    pod: PodRecord,
) -> None:
    ids: list[str] = []
    owners: list[str] = []
    for one, account in zip(node.resources, accounts, strict=True):
        mask = account.contested.get(pod.uid, 0)
        ids += (id_ for i, id_ in enumerate(one.ids) if mask >> i & 1)
        owners += (
            pods.name_of(uid) or uid for uid, own in account.assignments.items() if own.mask & mask
        )
    contested = tuple(ids)
    if contested and contested != pod.contested:
        conflict = PlanConflict(
            pod.namespace, pod.name, pod.uid, node.name, contested, tuple(owners)
        )
        pods.effects[conflict] = None
    pod.contested = contested


def _report_mismatch(
    pods: PodTracker,
    node: NodeRecord,
    pod: PodRecord,
    given: tuple[ContainerPlan, ...] | None,
    *,
    is_named: bool,
) -> None:
    if given is None:
        # A node whose report cannot be read does not show that they agree.
        if pod.reported is not None and is_named:
            pod.reported = None
            pods.effects[Agreement(pod.namespace, pod.name, pod.uid)] = None
        return
    text = encode_allocation(node.name, given)
    if pod.plan is not None and hash(text) != pod.reported:
        pod.reported = hash(text)
        planned = pod.plan.containers
        mismatch = Mismatch(pod.namespace, pod.name, pod.uid, node.name, planned, given, text)
        pods.effects[mismatch] = None


def _report_missing(pods: PodTracker, node: NodeRecord, pod: PodRecord) -> None:
    missing = tuple([one for one in node.report.missing if one.uid == pod.uid])
    if missing and missing != pod.missing:
        pods.effects[Missing(pod.namespace, pod.name, pod.uid, node.name, missing)] = None
    pod.missing = missing
