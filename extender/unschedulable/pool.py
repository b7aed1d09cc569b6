"""Pods that filter rejected: why, since when, and which of them to wake when devices come free.

What it answers: which pods fit again and were not tried since. kube-scheduler parks a rejected pod
until an event that may help, or for five minutes. The events that free devices wake it as well, so
normally it comes back by itself; but it may have consumed the event before we saw it (we then
reject from the older state), and some changes are no event to it (a device that recovered, a hold
that a node reports ended). Such a pod is touched, which wakes it.

A pod is to be woken once a node came into question after its last rejection, fits still, and nobody
asked for the pod for `wake_after_s`. A node counts as the pod itself may use it: with what pods of
lower priority have claimed, and with its own claim. The pod's selectors and tolerations are the
scheduler's: a node that we knew and that it did not ask about last time is in question for nobody
(it must look at all nodes: percentageOfNodesToScore 100). Still a wake may be in vain, and the same
pod is woken for the same nodes at growing intervals (1 s to 5 minutes).

Pods of one shape stand together, and among them those of one priority that were asked about on the
same nodes. A change costs one rating for each shape and distinct node state, as often as claims
make them differ, however many pods there are. It never chooses a node and never reads a clock.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from extender.placement import Rating
from extender.unschedulable.node_bitmap import NodeNumbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from extender.placement import Rater
    from extender.protocol import PodRequest, Reason, Shape
    from extender.snapshot import ClusterSnapshot
    from extender.state import LiveCluster

__all__ = ["Requeue", "UnschedulablePod", "UnschedulablePool"]

MAX_PODS = 20_000
"""Pods remembered; beyond it the one rejected longest ago is dropped. About 1 KB each, and one bit
for each node of the cluster where no other pod was asked about the same nodes."""
MAX_CANDIDATES = 32
"""Nodes kept in question for pods that stand together, the latest. One that fits is reason enough
to wake a pod."""
SPARE_NUMBERS = 1024
"""Node numbers that may go out of use before nodes are numbered anew."""
MAX_WAKES = 20
"""Pods woken in one call; each costs a patch."""
FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 300.0
"""Between two wakes of one pod. The last is the interval at which kube-scheduler flushes parked
pods anyway (scheduling_queue.go, DefaultPodMaxInUnschedulablePodsDuration)."""
KEEP_S = 900.0
"""A pod that nobody asked for in this time is no more: three times the scheduler's interval.
Pending pods are not watched, so their end is not seen."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """A pod to touch (`coterie.gpu/retry`), so that kube-scheduler tries it again.

    `retry` is what the annotation was when the pod was last rejected; None where what stands there
    now may be from an earlier wake.
    """

    namespace: str
    name: str
    uid: str
    retry: str | None = None


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """A rejected pod. `since_s` is its first rejection in a row, `seen_s` its last.

    `shape` is None for a pod that asks for what cannot be meant: no change of the cluster helps it.
    `n_wakes` counts those since it was last woken for a node for which it had not been woken
    before; `woken_for` masks all these nodes, by number. `retry` is the pod's annotation
    `coterie.gpu/retry`, as filter was shown it last.
    """

    uid: str
    namespace: str
    name: str
    reason: Reason
    since_s: float
    seen_s: float
    shape: Shape | None
    priority: int = 0
    n_wakes: int = 0
    woken_s: float = -math.inf
    woken_for: int = 0
    retry: str = ""

    @property
    def quiet_until_s(self) -> float:
        """Until when it is not woken again for the same nodes."""
        return self.woken_s + min(FIRST_PAUSE_S * 2.0 ** min(self.n_wakes - 1, 9), LAST_PAUSE_S)


@dataclass(frozen=True, slots=True)
class _CandidateNode:
    """A node that came into question for pods: when first, and when last."""

    first_s: float
    last_s: float


_Key: TypeAlias = "tuple[int, int, str]"
"""Identifies a group within a shape: priority, nodes left out, the pod that has a claim."""


@dataclass(slots=True, eq=False)
class _CandidateGroup:
    """Pods for which the same nodes are in question, and these nodes, the latest last.

    `viewpoint` is as whom they see the cluster: any pod of their priority, or the one pod that has
    a claim, with its uid. `left_out` masks nodes that the scheduler did not ask about, by number.
    """

    viewpoint: PodRequest
    left_out: int
    uids: dict[str, None] = field(default_factory=dict[str, None])
    candidates: dict[str, _CandidateNode] = field(default_factory=dict[str, _CandidateNode])

    def add_candidates(self, names: Iterable[str], now_s: float) -> None:
        """These nodes came into question now."""
        for name in names:
            earlier = self.candidates.pop(name, None)
            self.candidates[name] = _CandidateNode(
                now_s if earlier is None else earlier.first_s, now_s
            )
        while len(self.candidates) > MAX_CANDIDATES:
            del self.candidates[next(iter(self.candidates))]


@dataclass(slots=True, eq=False)
class _ShapeGroup:
    """The pods of one shape. Before `next_s` none of them can be due."""

    candidate_groups: dict[_Key, _CandidateGroup] = field(
        default_factory=dict["_Key", _CandidateGroup]
    )
    next_s: float = math.inf


class _Snapshots:
    """The cluster at one moment, as each may use it."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        self._snapshots: dict[tuple[int, str], ClusterSnapshot] = {}

    def of(self, viewpoint: PodRequest) -> ClusterSnapshot:
        """The same object for all for whom it is the same."""
        key = viewpoint.priority, viewpoint.uid
        if key not in self._snapshots:
            self._snapshots[key] = self._cluster.snapshot_for(viewpoint)
        return self._snapshots[key]


class UnschedulablePool:
    """The rejected pods of one engine."""

    def __init__(self, rater: Rater, *, wake_after_s: float, max_pods: int = MAX_PODS) -> None:
        self._rater = rater
        self._wake_after_s = wake_after_s
        self._max_pods = max_pods
        self._pods: dict[str, UnschedulablePod] = {}
        self._groups: dict[Shape, _ShapeGroup] = {}
        self._group_keys: dict[str, tuple[Shape, _Key]] = {}
        self._numbers = NodeNumbers()

    # What filter tells.

    def park(
        self,
        pod: UnschedulablePod,
        request: PodRequest | None,
        *,
        requested: Collection[str] = (),
        known: Collection[str] = (),
    ) -> None:
        """A pod was rejected, maybe not for the first time; `request` where it could be read.

        `requested` are the nodes of the filter request, `known` all that there are: a node
        that comes later may be the pod's as well.
        """
        before = self._pods.pop(pod.uid, None)
        if before is not None:
            self._leave(pod.uid)
            pod = replace(
                pod,
                since_s=before.since_s,
                n_wakes=before.n_wakes,
                woken_s=before.woken_s,
                woken_for=before.woken_for,
            )
        self._pods[pod.uid] = pod
        if request is not None and pod.shape is not None:
            self._trim_numbers(len(known))
            names = set(requested)
            left_out = self._numbers.mask(name for name in known if name not in names)
            self._join(pod.uid, pod.shape, replace(request, uid=""), left_out)
        if len(self._pods) > self._max_pods:
            self.forget(next(iter(self._pods)))

    def forget(self, uid: str) -> None:
        """The pod was accepted, is bound, or is gone."""
        if self._pods.pop(uid, None) is not None:
            self._leave(uid)

    # What the cluster tells.

    def change(self, nodes: Iterable[str], cluster: LiveCluster, now_s: float) -> None:
        """These nodes may take more than before: devices came free, or they are new or other."""
        if not self._groups:
            return
        known = cluster.snapshot.positions
        names = [name for name in nodes if name in known]
        self._trim_numbers(len(known))
        self._single_out(names, cluster)
        snapshots = _Snapshots(cluster)
        for group in self._groups.values():
            masks: dict[int, int] = {}
            for pods in group.candidate_groups.values():
                snapshot = snapshots.of(pods.viewpoint)
                if id(snapshot) not in masks:
                    masks[id(snapshot)] = self._fitting(pods.viewpoint, names, snapshot)
                in_question = masks[id(snapshot)] & ~pods.left_out
                if in_question:
                    pods.add_candidates(
                        self._numbers.latest(in_question, at_most=MAX_CANDIDATES), now_s
                    )
                    group.next_s = min(group.next_s, now_s + self._wake_after_s)

    def due(self, cluster: LiveCluster, now_s: float) -> tuple[Requeue, ...]:
        """Take the pods to wake now: by priority, then who waits longest.

        Of one shape only as many as there is room for on the nodes in question: where devices for
        one pod came free, waking all would only have the scheduler reject the others again.
        """
        self._drop_old(now_s)
        snapshots = _Snapshots(cluster)
        woken = [
            pod
            for group in self._groups.values()
            if group.next_s <= now_s
            for pod in self._due_of(group, snapshots, now_s)
        ]
        return tuple(map(self._wake, sorted(woken, key=_turn)[:MAX_WAKES]))

    # Reading.

    @property
    def n_pods(self) -> int:
        """Number of pods that are parked."""
        return len(self._pods)

    def pod(self, uid: str) -> UnschedulablePod | None:
        """A parked pod, or None."""
        return self._pods.get(uid)

    def counts(self) -> Mapping[Reason, int]:
        """Number of parked pods by the reason of their last rejection."""
        return Counter(pod.reason for pod in self._pods.values())

    # Inside.

    def _fitting(
        self, viewpoint: PodRequest, names: Iterable[str], snapshot: ClusterSnapshot
    ) -> int:
        """The mask of those of the nodes that can take the pod."""
        views = [snapshot.nodes[name] for name in names]
        by_state = {view.state: view for view in views}
        rated = self._rater.rate(viewpoint, by_state.values())
        fits = {s for s, one in zip(by_state, rated, strict=True) if isinstance(one, Rating)}
        return self._numbers.mask(view.name for view in views if view.state in fits)

    def _due_of(
        self, group: _ShapeGroup, snapshots: _Snapshots, now_s: float
    ) -> list[UnschedulablePod]:
        """The pods of one shape to wake, as woken; and when to look again."""
        group.next_s = math.inf
        due: list[tuple[UnschedulablePod, Mapping[str, int]]] = []
        used: Counter[str] = Counter()
        for pods in group.candidate_groups.values():
            n_fitting = self._n_fitting(pods, snapshots.of(pods.viewpoint))
            last_s = max((pods.candidates[name].last_s for name in n_fitting), default=-math.inf)
            for pod in map(self._pods.__getitem__, pods.uids):
                if pod.seen_s > last_s:
                    continue
                candidates = {
                    name: candidate
                    for name, candidate in pods.candidates.items()
                    if candidate.last_s >= pod.seen_s
                }
                if pod.seen_s <= pod.woken_s and now_s - pod.woken_s < FIRST_PAUSE_S:
                    _take_slot(used, n_fitting)  # on its way to the scheduler
                woken = self._woken(pod, candidates, now_s)
                pause_ends_s = (
                    pod.quiet_until_s if woken.n_wakes > 1 else pod.woken_s + FIRST_PAUSE_S
                )
                first_s = min(candidate.first_s for candidate in candidates.values())
                due_s = max(max(first_s, pod.seen_s) + self._wake_after_s, pause_ends_s)
                if due_s <= now_s:
                    due.append((woken, {name: n_fitting[name] for name in candidates}))
                else:
                    group.next_s = min(group.next_s, due_s)
        if due:
            group.next_s = min(group.next_s, now_s + self._wake_after_s)
        due.sort(key=lambda one: _turn(one[0]))
        return [pod for pod, n_fitting in due if _take_slot(used, n_fitting)]

    def _wake(self, pod: UnschedulablePod) -> Requeue:
        before, self._pods[pod.uid] = self._pods[pod.uid], pod
        is_first = before.woken_s < before.seen_s
        return Requeue(pod.namespace, pod.name, pod.uid, pod.retry if is_first else None)

    def _woken(self, pod: UnschedulablePod, names: Iterable[str], now_s: float) -> UnschedulablePod:
        """The pod as it is once it is woken for these nodes."""
        reasons = self._numbers.mask(names)
        n_wakes = 1 if reasons & ~pod.woken_for else pod.n_wakes + 1
        woken_for = pod.woken_for | reasons
        return replace(pod, n_wakes=n_wakes, woken_s=now_s, woken_for=woken_for)

    def _n_fitting(self, pods: _CandidateGroup, snapshot: ClusterSnapshot) -> dict[str, int]:
        """Drop the nodes that do not fit any more; for how many pods the others have devices."""
        views = [view for name in pods.candidates if (view := snapshot.nodes.get(name)) is not None]
        rated = self._rater.rate(pods.viewpoint, views)
        fitting = [v for v, rating in zip(views, rated, strict=True) if isinstance(rating, Rating)]
        pods.candidates = {view.name: pods.candidates[view.name] for view in fitting}
        return {view.name: view.free.bit_count() // pods.viewpoint.size_gpus for view in fitting}

    def _single_out(self, names: Iterable[str], cluster: LiveCluster) -> None:
        """A pod that has a claim on one of the nodes may use more there than others."""
        owners = {owner for name in names for _, _, owner in cluster.devices(name)}
        for uid in sorted(owner for owner in owners if owner in self._group_keys):
            shape, key = self._group_keys[uid]
            pods = self._groups[shape].candidate_groups[key]
            if not pods.viewpoint.uid:
                self._leave(uid)
                viewpoint = replace(pods.viewpoint, uid=uid)
                self._join(uid, shape, viewpoint, pods.left_out).candidates |= pods.candidates

    def _join(
        self, uid: str, shape: Shape, viewpoint: PodRequest, left_out: int
    ) -> _CandidateGroup:
        key = viewpoint.priority, left_out, viewpoint.uid
        group = self._groups.setdefault(shape, _ShapeGroup())
        pods = group.candidate_groups.setdefault(key, _CandidateGroup(viewpoint, left_out))
        pods.uids[uid] = None
        self._group_keys[uid] = shape, key
        return pods

    def _leave(self, uid: str) -> None:
        home = self._group_keys.pop(uid, None)
        if home is None:
            return
        shape, key = home
        group = self._groups[shape]
        uids = group.candidate_groups[key].uids
        del uids[uid]
        if not uids:
            del group.candidate_groups[key]
        if not group.candidate_groups:
            del self._groups[shape]

    def _trim_numbers(self, n_nodes: int) -> None:
        """Number the nodes anew where many that had numbers are gone.

        Until it is asked about again, each pod then counts as asked about on all nodes.
        """
        if len(self._numbers) <= 2 * n_nodes + SPARE_NUMBERS:
            return
        self._numbers = NodeNumbers()
        self._pods = {uid: replace(pod, woken_for=0) for uid, pod in self._pods.items()}
        for shape, group in self._groups.items():
            candidate_groups, group.candidate_groups = group.candidate_groups, {}
            for pods in candidate_groups.values():
                for uid in pods.uids:
                    self._join(uid, shape, pods.viewpoint, 0).candidates |= pods.candidates

    def _drop_old(self, now_s: float) -> None:
        """The pods stand in the order of their last rejection."""
        while self._pods:
            pod = next(iter(self._pods.values()))
            if now_s - pod.seen_s < KEEP_S:
                return
            self.forget(pod.uid)


def _turn(pod: UnschedulablePod) -> tuple[int, float, str]:
    return -pod.priority, pod.since_s, pod.uid


def _take_slot(used: Counter[str], n_fitting: Mapping[str, int]) -> bool:
    """Count a pod in on one of the nodes, if there is room for one more."""
    name = next((name for name, n_pods in n_fitting.items() if used[name] < n_pods), None)
    if name is None:
        return False
    used[name] += 1
    return True
