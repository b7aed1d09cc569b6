"""The requests of the pods that filter has seen recently.

Bind names a pod by uid alone. Bounded; the pod seen longest ago is dropped first, and a dropped one
is read from the API server.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.protocol.pod_request import PodRequest

__all__ = ["RecentPods"]

MAX_RECENT_PODS = 10_000
"""Pods remembered between filter and bind; kube-scheduler has few in flight at a time. About 1 KB
each."""


class RecentPods:
    """Requests by uid, the latest of each pod."""

    def __init__(self, max_pods: int = MAX_RECENT_PODS) -> None:
        self._max_pods = max_pods
        self._requests: OrderedDict[str, PodRequest] = OrderedDict()

    def remember(self, request: PodRequest) -> None:
        """Keep the request; one without a uid could not be named."""
        if not request.uid:
            return
        self._requests[request.uid] = request
        self._requests.move_to_end(request.uid)
        if len(self._requests) > self._max_pods:
            self._requests.popitem(last=False)

    def recall(self, uid: str, full_name: str) -> PodRequest | None:
        """What the pod of this uid and name requested, if it is kept."""
        request = self._requests.get(uid)
        return request if request is not None and request.full_name == full_name else None

    def forget(self, uid: str) -> None:
        """Drop a pod."""
        self._requests.pop(uid, None)
