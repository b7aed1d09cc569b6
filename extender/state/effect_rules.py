"""Derives effects from a node's account: what is to be read or reported of its pods.

Each effect (`extender.state.effects`) is reported once: the pod's record remembers it. Nothing else
is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.state.effects import Agreement, Mismatch, Missing, PlanConflict
from extender.state.pod_record import PodStage
from topology.annotations import encode_allocation

if TYPE_CHECKING:
    from extender.state.accounting import Account
    from extender.state.node_record import NodeRecord
    from extender.state.pod_record import PodRecord
    from extender.state.pods import PodTracker

__all__ = ["add_effects"]


def add_effects(pods: PodTracker, node: NodeRecord, account: Account, pod: PodRecord) -> None:
    """Add what follows for a pod on the node."""
    _probe(pods, node, account, pod)
    _report_conflict(pods, node, account, pod)
    _report_mismatch(pods, node, account, pod)
    _report_missing(pods, node, pod)


def _probe(pods: PodTracker, node: NodeRecord, account: Account, pod: PodRecord) -> None:
    """Where the node's devices have no names, a reading could not name the pod's either.

    A pod with lost devices is read too: the kubelet may have given it others in their place.
    """
    is_in_doubt = pod.uid in account.unlocated or pod.uid in account.lost
    pod.is_unlocated = is_in_doubt and node.machine is not None
    if not pod.is_unlocated:
        pod.was_probed = False
    elif not pod.was_probed and pod.stage is PodStage.SEEN:
        pods.probe(pod)


def _report_conflict(pods: PodTracker, node: NodeRecord, account: Account, pod: PodRecord) -> None:
    mask = account.contested.get(pod.uid, 0)
    ids = tuple(one for i, one in enumerate(node.ids) if mask >> i & 1) if mask else ()
    if ids and ids != pod.contested:
        owners = tuple(
            pods.name_of(uid) or uid for uid, one in account.assignments.items() if one.mask & mask
        )
        conflict = PlanConflict(pod.namespace, pod.name, pod.uid, node.name, ids, owners)
        pods.effects[conflict] = None
    pod.contested = ids


def _report_mismatch(pods: PodTracker, node: NodeRecord, account: Account, pod: PodRecord) -> None:
    given = account.given.get(pod.uid)
    if pod.plan is None:
        return
    if given is None:
        # A node whose report cannot be read does not show that they agree.
        if pod.reported is not None and node.machine is not None:
            pod.reported = None
            pods.effects[Agreement(pod.namespace, pod.name, pod.uid)] = None
        return
    text = encode_allocation(node.name, given)
    if hash(text) != pod.reported:
        pod.reported = hash(text)
        planned = pod.plan.containers
        mismatch = Mismatch(pod.namespace, pod.name, pod.uid, node.name, planned, given, text)
        pods.effects[mismatch] = None


def _report_missing(pods: PodTracker, node: NodeRecord, pod: PodRecord) -> None:
    missing = tuple([one for one in node.report.missing if one.uid == pod.uid])
    if missing and missing != pod.missing:
        pods.effects[Missing(pod.namespace, pod.name, pod.uid, node.name, missing)] = None
    pod.missing = missing
