"""What is to be read or told of a pod once its node's account is made.

What it answers: which effects (`extender.state.effects`) follow from an account, each once: the
pod's record remembers what was told. It changes nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extender.state.effects import Agreement, Conflict, Mismatch, Missing
from extender.state.pod_record import PodStage
from topology.annotations import encode_allocation

if TYPE_CHECKING:
    from extender.state.accounting import Account
    from extender.state.node_record import NodeRecord
    from extender.state.pod_record import PodRecord
    from extender.state.pods import PodBook

__all__ = ["tell_pod"]


def tell_pod(book: PodBook, node: NodeRecord, account: Account, pod: PodRecord) -> None:
    """Note what follows for a pod that is at home on the node."""
    _probe(book, node, account, pod)
    _tell_conflict(book, node, account, pod)
    _tell_mismatch(book, node, account, pod)
    _tell_missing(book, node, pod)


def _probe(book: PodBook, node: NodeRecord, account: Account, pod: PodRecord) -> None:
    """Where the node's devices have no names, a reading could not name the pod's either."""
    pod.is_lost = pod.uid in account.unlocated and node.machine is not None
    if not pod.is_lost:
        pod.was_probed = False
    elif not pod.was_probed and pod.stage is PodStage.SEEN:
        book.probe(pod)


def _tell_conflict(book: PodBook, node: NodeRecord, account: Account, pod: PodRecord) -> None:
    mask = account.contested.get(pod.uid, 0)
    ids = tuple(one for i, one in enumerate(node.ids) if mask >> i & 1) if mask else ()
    if ids and ids != pod.contested:
        owners = tuple(
            book.name_of(uid) or uid for uid, share in account.shares.items() if share.mask & mask
        )
        told = Conflict(pod.namespace, pod.name, pod.uid, node.name, ids, owners)
        book.effects[told] = None
    pod.contested = ids


def _tell_mismatch(book: PodBook, node: NodeRecord, account: Account, pod: PodRecord) -> None:
    given = account.given.get(pod.uid)
    if pod.plan is None:
        return
    if given is None:
        # A node whose report cannot be read does not say that they agree.
        if pod.told is not None and node.machine is not None:
            pod.told = None
            book.effects[Agreement(pod.namespace, pod.name, pod.uid)] = None
        return
    text = encode_allocation(node.name, given)
    if hash(text) != pod.told:
        pod.told = hash(text)
        planned = pod.plan.containers
        told = Mismatch(pod.namespace, pod.name, pod.uid, node.name, planned, given, text)
        book.effects[told] = None


def _tell_missing(book: PodBook, node: NodeRecord, pod: PodRecord) -> None:
    missing = tuple([one for one in node.report.missing if one.uid == pod.uid])
    if missing and missing != pod.missing:
        book.effects[Missing(pod.namespace, pod.name, pod.uid, node.name, missing)] = None
    pod.missing = missing
