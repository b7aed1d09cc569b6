"""The pods without a node of one engine: each waits for filter, was rejected by it, or accepted.

Filter says which it rejected and accepted. Bind names a pod by uid alone, and finds here what it
requested; so do readers, also of a pod that has a node since. kube-scheduler counts GPUs, CPU and
memory itself, and calls the extender for the nodes that are left: where none is left it calls no
extender. Such a pod waits all the same, for people: the watch of pending pods shows it.

What the watch shows decides nothing and is in no decision log, so that it never becomes an answer
to filter or bind, and counts towards no bound of the others.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from extender.pending.requeues import Requeues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from extender.pending.waiting_pod import Requeue, WaitingPod
    from extender.placement import Rater
    from extender.protocol import PodRequest, Reason
    from extender.state import LiveCluster

__all__ = ["PendingPods"]

MAX_PODS = 20_000
"""Rejected pods remembered; beyond it the one rejected longest ago is dropped. About 1 KB each, and
one bit for each node of the cluster where no other pod has the same requested nodes. As many that
were not offered, of which the first seen is dropped."""
MAX_ACCEPTED = 10_000
"""Accepted pods remembered, with a node or not, of about 1 KB each; beyond it the one accepted
longest ago is dropped, and bind reads it from the API server. kube-scheduler has few in flight at a
time."""
KEEP_S = 900.0
"""A rejected pod that was not filtered in this time is gone: three times the scheduler's interval.
It only matters where the watch of pending pods fails, which shows the end of the others."""


class PendingPods:
    """The pods; a uid is among the rejected or among the accepted ones, never both."""

    def __init__(
        self,
        rater: Rater,
        *,
        wake_after_s: float,
        max_pods: int = MAX_PODS,
        max_accepted: int = MAX_ACCEPTED,
    ) -> None:
        self._max_pods = max_pods
        self._max_accepted = max_accepted
        self._rejected: dict[str, WaitingPod] = {}
        self._accepted: OrderedDict[str, PodRequest] = OrderedDict()
        self._shown: dict[str, WaitingPod] = {}
        self._requeues = Requeues(rater, self._rejected, wake_after_s=wake_after_s)

    # From filter and bind.

    def accept(self, request: PodRequest) -> WaitingPod | None:
        """A pod may be bound; returns how it waited, if it did. One without a uid is not kept."""
        uid = request.uid
        if not uid:
            return None
        before = self._leave(uid)
        self._accepted[uid] = request
        self._accepted.move_to_end(uid)
        if len(self._accepted) > self._max_accepted:
            self._accepted.popitem(last=False)
        return before

    def reject(
        self,
        pod: WaitingPod,
        *,
        requested: Collection[str] | None = None,
        known: Collection[str] = (),
    ) -> None:
        """A pod was rejected, maybe not for the first time.

        `requested` are the nodes of the filter request, `known` all that there are: a node
        that is added later may take the pod as well. None: no node that changes may help it.
        """
        before = self._leave(pod.uid)
        self._accepted.pop(pod.uid, None)
        if before is not None:
            pod = replace(
                pod,
                since_s=before.since_s,
                n_requeues=before.n_requeues,
                requeued_s=before.requeued_s,
                requeued_for=before.requeued_for,
            )
        self._rejected[pod.uid] = pod
        if requested is not None:
            self._requeues.join(pod, requested, known)
        if len(self._rejected) > self._max_pods:
            self.forget(next(iter(self._rejected)))

    def recall(self, uid: str, full_name: str) -> PodRequest | None:
        """What the pod of this uid and name requested in its last filter call, if that is kept."""
        rejected = self._rejected.get(uid)
        request = self._accepted.get(uid) if rejected is None else rejected.request
        return request if request is not None and request.full_name == full_name else None

    # From the cluster.

    def end_wait(self, uid: str) -> None:
        """The pod has a node, or is gone, or waits for something else: it is not requeued any more.

        What it requested is kept while there is room: none that was accepted is dropped for it.
        """
        pod = self._rejected.get(uid)
        if pod is None:
            return
        self._leave(uid)
        if pod.request is not None and len(self._accepted) < self._max_accepted:
            self._accepted[uid] = pod.request
            self._accepted.move_to_end(uid, last=False)

    def forget(self, uid: str) -> None:
        """The pod is gone, or what it requested is not to be bound any more."""
        self._leave(uid)
        self._accepted.pop(uid, None)

    def show(self, uid: str, pod: WaitingPod | None) -> None:
        """The watch of pending pods shows a pod; None: it does not, or it is not for us."""
        if pod is None:
            self._shown.pop(uid, None)
            return
        if self._shown.get(uid) != pod:
            self._shown[uid] = pod
        if len(self._shown) > self._max_pods:
            del self._shown[next(iter(self._shown))]

    def change(self, nodes: Iterable[str], cluster: LiveCluster, now_s: float) -> None:
        """These nodes may take more than before: devices came free, or they are new or changed."""
        self._requeues.change(nodes, cluster, now_s)

    def due(self, cluster: LiveCluster, now_s: float) -> tuple[Requeue, ...]:
        """Take the pods to requeue now: by priority, then by waiting time."""
        while self._rejected:  # in the order of their last rejection
            pod = next(iter(self._rejected.values()))
            if now_s - pod.seen_s < KEEP_S:
                break
            self.forget(pod.uid)
        return self._requeues.due(cluster, now_s)

    # Reading.

    @property
    def n_rejected(self) -> int:
        """Number of rejected pods."""
        return len(self._rejected)

    def rejected(self, uid: str) -> WaitingPod | None:
        """A rejected pod, or None."""
        return self._rejected.get(uid)

    def counts(self) -> Mapping[Reason, int]:
        """Number of rejected pods by the reason of their last rejection."""
        return Counter(pod.reason for pod in self._rejected.values())

    def first_rejected_s(self) -> Mapping[Reason, float]:
        """When the pod that waits longest was first rejected, by the reason of its last."""
        first: dict[Reason, float] = {}
        for pod in self._rejected.values():
            first[pod.reason] = min(pod.since_s, first.get(pod.reason, math.inf))
        return first

    def waiting(self, is_placed: Callable[[str], bool]) -> Iterator[WaitingPod]:
        """The rejected pods, then those that filter was not called for and that have no node.

        `is_placed`: whether a uid has a node, or is about to get one. O(pods).
        """
        yield from self._rejected.values()
        for uid, pod in self._shown.items():
            if uid not in self._rejected and not is_placed(uid):
                yield pod

    def _leave(self, uid: str) -> WaitingPod | None:
        pod = self._rejected.pop(uid, None)
        if pod is not None:
            self._requeues.leave(uid)
        return pod
