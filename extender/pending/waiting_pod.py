"""A pod that has no node yet: why, since when, and what was done about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.protocol import PodRequest, Reason, Shape

__all__ = ["FIRST_PAUSE_S", "LAST_PAUSE_S", "Requeue", "WaitingPod"]

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 300.0
"""Between two requeues of one pod. The last is the interval at which kube-scheduler tries pods
again anyway (scheduling_queue.go, DefaultPodMaxInUnschedulablePodsDuration)."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """A pod to touch (`coterie.gpu/retry`), so that kube-scheduler tries it again.

    `retry` is what the annotation was when the pod was last rejected; None where the
    annotation now may be from an earlier requeue.
    """

    namespace: str
    name: str
    uid: str
    retry: str | None = None


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that waits.

    Where filter rejected it, `since_s` is its first rejection in a row and `seen_s` its last. Where
    filter was not called for it, `reason` is NOT_OFFERED, `since_s` when it was created (Unix
    seconds), `seen_s` endlessly long ago, and `message` what kube-scheduler says of it, empty
    before its first attempt.

    `request` is None for an invalid one: no change of the cluster helps it.
    `n_requeues` counts those since it was last requeued for a node for which it had not been
    before; `requeued_for` masks all these nodes, by number. `n_samples` is how many filter requests
    like the last one it takes until all nodes were in one.
    """

    uid: str
    namespace: str
    name: str
    reason: Reason
    since_s: float
    seen_s: float
    request: PodRequest | None
    message: str = ""
    n_requeues: int = 0
    requeued_s: float = -math.inf
    requeued_for: int = 0
    n_samples: int = 1

    @property
    def shape(self) -> Shape | None:
        """What it requests, None also for an invalid request."""
        return None if self.request is None else self.request.shape

    @property
    def priority(self) -> int:
        """That of the pod; 0 for an invalid request."""
        return 0 if self.request is None else self.request.priority

    @property
    def retry(self) -> str:
        """Its annotation `coterie.gpu/retry` in its last filter request."""
        return "" if self.request is None else self.request.retry

    @property
    def quiet_until_s(self) -> float:
        """When it may be requeued for the same nodes: later each time, once all were looked at."""
        n_doublings = min(max(self.n_requeues - self.n_samples, 0), 9)
        return self.requeued_s + min(FIRST_PAUSE_S * 2.0**n_doublings, LAST_PAUSE_S)
