"""The groups of pods that become schedulable by the same nodes.

Values and their bookkeeping; `extender.pending.requeues` decides which pods to requeue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping

    from extender.pending.waiting_pod import WaitingPod
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot
    from extender.state import LiveCluster

__all__ = [
    "MAX_CANDIDATES",
    "CandidateGroup",
    "GroupKey",
    "ShapeGroup",
    "SnapshotCache",
    "order_of",
    "reserve_slot",
]

MAX_CANDIDATES = 32
"""Candidate nodes kept for each group, the latest. One that fits is enough to requeue a pod."""


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
        for name, one in before.candidates.items():
            own = self.candidates.get(name, one)
            first_s, last_s = min(own.first_s, one.first_s), max(own.last_s, one.last_s)
            self.candidates[name] = CandidateNode(first_s, last_s)
        latest = sorted(self.candidates.items(), key=lambda item: item[1].last_s)
        self.candidates = dict(latest[-MAX_CANDIDATES:])
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


def order_of(pod: WaitingPod) -> tuple[int, float, str]:
    """Which pod is requeued first: the one of the highest priority, then the oldest."""
    return -pod.priority, pod.since_s, pod.uid


def reserve_slot(used: Counter[str], n_fitting: Mapping[str, int]) -> bool:
    """Reserve one of the nodes for a pod, if one more fits."""
    name = next((name for name, n_pods in n_fitting.items() if used[name] < n_pods), None)
    if name is None:
        return False
    used[name] += 1
    return True
