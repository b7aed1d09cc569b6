"""An unschedulable pod, and the groups of pods that become schedulable by the same nodes.

Values and their bookkeeping; `extender.unschedulable.pool` decides which pods to requeue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping

    from extender.protocol import PodRequest, Reason, Shape
    from extender.snapshot import ClusterSnapshot
    from extender.state import LiveCluster

__all__ = [
    "FIRST_PAUSE_S",
    "LAST_PAUSE_S",
    "MAX_CANDIDATES",
    "CandidateGroup",
    "GroupKey",
    "Requeue",
    "ShapeGroup",
    "SnapshotCache",
    "UnschedulablePod",
    "order_of",
    "reserve_slot",
]

MAX_CANDIDATES = 32
"""Candidate nodes kept for each group, the latest. One that fits is enough to requeue a pod."""
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
class UnschedulablePod:
    """A rejected pod. `since_s` is its first rejection in a row, `seen_s` its last.

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


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A node on which pods may fit: when it became a candidate first, and last."""

    first_s: float
    last_s: float


GroupKey: TypeAlias = "tuple[int, int, str]"
"""Identifies a group within a shape: priority, nodes left out, the pod that has a claim."""


@dataclass(slots=True, eq=False)
class CandidateGroup:
    """Pods with the same candidate nodes, and these nodes, the latest last.

    `viewpoint` selects the snapshot for them: any pod of their priority, or the one pod that has a
    claim, with its uid. `left_out` masks nodes that were not in the filter request, by number; none
    where that was a sample. `has_unseen_nodes`: one of them was rejected on a sample, or a change
    brought more states than can be rated at once, and not all nodes were looked at since.
    """

    viewpoint: PodRequest
    left_out: int
    has_unseen_nodes: bool = False
    uids: dict[str, None] = field(default_factory=dict[str, None])
    candidates: dict[str, CandidateNode] = field(default_factory=dict[str, CandidateNode])

    def add_candidates(self, names: Iterable[str], now_s: float) -> None:
        """These nodes became candidates now."""
        for name in names:
            earlier = self.candidates.pop(name, None)
            self.candidates[name] = CandidateNode(
                now_s if earlier is None else earlier.first_s, now_s
            )
        while len(self.candidates) > MAX_CANDIDATES:
            del self.candidates[next(iter(self.candidates))]

    def take_over(self, before: CandidateGroup) -> None:
        """A pod of another group has joined: what that one had to look at is looked at here."""
        self.candidates |= before.candidates
        self.has_unseen_nodes = self.has_unseen_nodes or before.has_unseen_nodes


@dataclass(slots=True, eq=False)
class ShapeGroup:
    """The pods of one shape. Before `next_s` none of them can be due."""

    candidate_groups: dict[GroupKey, CandidateGroup] = field(
        default_factory=dict["GroupKey", CandidateGroup]
    )
    next_s: float = math.inf


class SnapshotCache:
    """The cluster at one moment, as each group may use it."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        self._snapshots: dict[tuple[str, int, str], ClusterSnapshot] = {}

    def of(self, viewpoint: PodRequest) -> ClusterSnapshot:
        """The snapshot of a viewpoint; the same object where nothing differs."""
        key = viewpoint.resource, viewpoint.priority, viewpoint.uid
        if key not in self._snapshots:
            self._snapshots[key] = self._cluster.snapshot_for(viewpoint)
        return self._snapshots[key]


def order_of(pod: UnschedulablePod) -> tuple[int, float, str]:
    """Which pod is requeued first: the one of the highest priority, then the oldest."""
    return -pod.priority, pod.since_s, pod.uid


def reserve_slot(used: Counter[str], n_fitting: Mapping[str, int]) -> bool:
    """Reserve one of the nodes for a pod, if one more fits."""
    name = next((name for name, n_pods in n_fitting.items() if used[name] < n_pods), None)
    if name is None:
        return False
    used[name] += 1
    return True
