"""Which rejected pods to requeue when devices come free.

kube-scheduler does not try a rejected pod again before an event that may help, or five minutes. The
events that free devices are such events, so normally it comes back by itself; but it may have
consumed the event before we saw it (we then reject from the older state), and some changes are no
event to it (a device that recovered, a hold that a node reports ended). Such a pod is requeued: a
change of its annotation makes the scheduler try it.

A pod is to be requeued once a node became a candidate after its last rejection, still fits, and the
pod was not filtered for `wake_after_s`. A node counts as the pod itself may use it: with what pods
of lower priority have claimed, and with its own claim. The pod's selectors and tolerations are the
scheduler's: a node that was known and missing in the pod's last filter request is no candidate for
it. Not so where that request may have been a sample of the nodes (`extender.pending.sampling`):
then every node that fits is a candidate at once, since the pod was rejected without them. A requeue
may still not help, and the same pod is requeued for the same nodes at growing intervals (1 s to 5
minutes), which begin to grow when the samples had time to show all nodes.

Pods of one shape form a group, and in it those of one priority with the same requested nodes. A
change costs one rating for each shape and distinct node state, as often as claims make them differ,
however many pods there are, and no more than a bounded number: groups for which that is not enough
look at all nodes later, as after a sample. It never chooses a node and never reads a clock.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from extender.pending.node_bitmap import NodeNumbers
from extender.pending.pod_groups import (
    MAX_CANDIDATES,
    CandidateGroup,
    ShapeGroup,
    SnapshotCache,
    order_of,
    reserve_slot,
)
from extender.pending.sampling import is_sample_size, n_samples
from extender.pending.waiting_pod import FIRST_PAUSE_S, Requeue
from extender.placement import Rank, RatingBudget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from extender.pending.pod_groups import GroupKey
    from extender.pending.waiting_pod import WaitingPod
    from extender.placement import Rater, Refusal
    from extender.protocol import PodRequest, Shape
    from extender.snapshot import ClusterSnapshot, NodeView
    from extender.state import LiveCluster

__all__ = ["Requeues"]

SPARE_NUMBERS = 1024
"""Node numbers that may go out of use before nodes are renumbered."""
MAX_REQUEUES = 20
"""Pods requeued in one call; each costs a patch."""
MAX_LOOK_WORK = 16
"""Work of the ratings of one look at all nodes. The others are rated between requests, one at a
time, and looked at the next time."""
MAX_WORK = 1000
"""Work of the ratings of one change of the cluster, for all shapes together, and of one look at the
candidates (`extender.placement.rating_work`): some 30 ms. Groups for which a change is beyond it
look at all nodes, as after a sample."""


class Requeues:
    """The groups of the rejected pods of one engine; `pods` are these, by uid, in their order.

    Only what was requeued is changed in them.
    """

    def __init__(self, rater: Rater, pods: dict[str, WaitingPod], *, wake_after_s: float) -> None:
        self._rater = rater
        self._wake_after_s = wake_after_s
        self._pods = pods
        self._groups: dict[Shape, ShapeGroup] = {}
        self._group_keys: dict[str, tuple[Shape, GroupKey]] = {}
        self._numbers = NodeNumbers()

    def join(self, pod: WaitingPod, requested: Collection[str], known: Collection[str]) -> None:
        """A rejected pod is to be requeued for nodes that change, but not for those left out."""
        if pod.request is None or pod.shape is None:
            return
        self._trim_numbers(len(known))
        viewpoint = replace(pod.request, uid="")
        if is_sample_size(len(requested), len(known)):
            rounds = n_samples(len(requested), len(known))
            self._pods[pod.uid] = replace(self._pods[pod.uid], n_samples=rounds)
            self._join(pod.uid, pod.shape, viewpoint, 0).has_unseen_nodes = True
            self._groups[pod.shape].next_s = pod.seen_s
        else:
            names = set(requested)
            left_out = self._numbers.mask(name for name in known if name not in names)
            self._join(pod.uid, pod.shape, viewpoint, left_out)

    def leave(self, uid: str) -> None:
        """A pod is not to be requeued any more."""
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

    def change(self, nodes: Iterable[str], cluster: LiveCluster, now_s: float) -> None:
        """These nodes may take more than before: devices came free, or they are new or changed."""
        if not self._groups:
            return
        known = cluster.snapshot.positions
        names = [name for name in nodes if name in known]
        self._trim_numbers(len(known))
        self._split_off_owners(names, cluster)
        snapshots, budget = SnapshotCache(cluster), RatingBudget.of_work(MAX_WORK)
        for group in self._groups.values():
            masks: dict[int, int | None] = {}
            for pods in group.candidate_groups.values():
                snapshot = snapshots.of(pods.viewpoint)
                if id(snapshot) not in masks:
                    masks[id(snapshot)] = self._fitting(pods.viewpoint, names, snapshot, budget)
                fitting = masks[id(snapshot)]
                if fitting is None:
                    pods.has_unseen_nodes = True
                    group.next_s = min(group.next_s, now_s)
                elif new_candidates := fitting & ~pods.left_out:
                    pods.add_candidates(
                        self._numbers.latest(new_candidates, at_most=MAX_CANDIDATES), now_s
                    )
                    group.next_s = min(group.next_s, now_s + self._wake_after_s)

    def due(self, cluster: LiveCluster, now_s: float) -> tuple[Requeue, ...]:
        """Take the pods to requeue now: by priority, then by waiting time.

        Of one shape only as many as fit on the candidate nodes: where devices for
        one pod came free, requeuing all would only have the scheduler reject the others again.
        """
        look = _Look(SnapshotCache(cluster), now_s)
        groups = [group for group in self._groups.values() if group.next_s <= now_s]
        # What is beyond the budget is looked at the next time: the first in order come first.
        groups.sort(key=self._first_of)
        requeued = [pod for group in groups for pod in self._due_of(group, look)]
        return tuple(map(self._requeue, sorted(requeued, key=order_of)[:MAX_REQUEUES]))

    def _fitting(
        self,
        viewpoint: PodRequest,
        names: Iterable[str],
        snapshot: ClusterSnapshot,
        budget: RatingBudget,
    ) -> int | None:
        """The mask of those of the nodes that can take the pod; None if some are not rated yet."""
        views = [snapshot.nodes[name] for name in names]
        by_state = {view.state: view for view in views}
        rated = self._rated(viewpoint, by_state.values(), budget)
        if rated is None:
            return None
        fits = {s for s, one in zip(by_state, rated, strict=True) if isinstance(one, Rank)}
        return self._numbers.mask(view.name for view in views if view.state in fits)

    def _all_fitting(
        self, pods: CandidateGroup, snapshot: ClusterSnapshot, budget: RatingBudget
    ) -> Sequence[str] | None:
        """The nodes that can take the pods, at most `MAX_CANDIDATES`; None as in `_fitting`."""
        occurring: list[int] = np.unique(snapshot.state_ids).tolist()
        samples = [snapshot.samples[number] for number in occurring]
        rated = self._rated(pods.viewpoint, samples, budget)
        if rated is None:
            return None
        fits = [n for n, one in zip(occurring, rated, strict=True) if isinstance(one, Rank)]
        positions: list[int] = np.isin(snapshot.state_ids, fits).nonzero()[0].tolist()
        names = snapshot.node_index.names
        mask = self._numbers.mask(names[position] for position in positions)
        mask &= ~pods.left_out
        return self._numbers.latest(mask, at_most=MAX_CANDIDATES)

    def _rated(
        self, viewpoint: PodRequest, views: Iterable[NodeView], budget: RatingBudget
    ) -> list[Rank | Refusal] | None:
        """The ratings of nodes, or None where the budget does not reach for all."""
        n_deferred = budget.n_deferred
        rated = self._rater.rate(viewpoint, views, budget)
        return None if budget.n_deferred > n_deferred else rated

    def _first_of(self, group: ShapeGroup) -> tuple[int, float, str]:
        uids = (uid for pods in group.candidate_groups.values() for uid in pods.uids)
        return min(order_of(self._pods[uid]) for uid in uids)

    def _due_of(self, group: ShapeGroup, look: _Look) -> list[WaitingPod]:
        """The pods of one shape to requeue, as they are then; and when to look again."""
        now_s = look.now_s
        group.next_s = math.inf
        due: list[tuple[WaitingPod, Mapping[str, int]]] = []
        used: Counter[str] = Counter()
        for pods in group.candidate_groups.values():
            snapshot = look.snapshots.of(pods.viewpoint)
            if pods.has_unseen_nodes:
                fitting = self._all_fitting(pods, snapshot, look.all_nodes)
                if fitting is None:
                    group.next_s = now_s
                else:
                    pods.has_unseen_nodes = False
                    pods.add_candidates(fitting, now_s)
            n_fitting = self._n_fitting(pods, snapshot, look.candidates)
            if n_fitting is None:
                group.next_s = now_s
                continue
            last_s = max((pods.candidates[name].last_s for name in n_fitting), default=-math.inf)
            for pod in map(self._pods.__getitem__, pods.uids):
                if pod.seen_s > last_s:
                    continue
                candidates = {
                    name: candidate
                    for name, candidate in pods.candidates.items()
                    if candidate.last_s >= pod.seen_s
                }
                if pod.seen_s <= pod.requeued_s and now_s - pod.requeued_s < FIRST_PAUSE_S:
                    reserve_slot(used, n_fitting)  # requeued just now, not yet filtered again
                requeued = self._requeued(pod, candidates, now_s)
                pause_ends_s = (
                    pod.quiet_until_s if requeued.n_requeues > 1 else pod.requeued_s + FIRST_PAUSE_S
                )
                first_s = min(candidate.first_s for candidate in candidates.values())
                due_s = max(max(first_s, pod.seen_s) + self._wake_after_s, pause_ends_s)
                if due_s <= now_s:
                    due.append((requeued, {name: n_fitting[name] for name in candidates}))
                else:
                    group.next_s = min(group.next_s, due_s)
        if due:
            group.next_s = min(group.next_s, now_s + self._wake_after_s)
        due.sort(key=lambda one: order_of(one[0]))
        return [pod for pod, n_fitting in due if reserve_slot(used, n_fitting)]

    def _requeue(self, pod: WaitingPod) -> Requeue:
        before, self._pods[pod.uid] = self._pods[pod.uid], pod
        is_first = before.requeued_s < before.seen_s
        return Requeue(pod.namespace, pod.name, pod.uid, pod.retry if is_first else None)

    def _requeued(self, pod: WaitingPod, names: Iterable[str], now_s: float) -> WaitingPod:
        """The pod as it is once it is requeued for these nodes."""
        reasons = self._numbers.mask(names)
        n_requeues = 1 if reasons & ~pod.requeued_for else pod.n_requeues + 1
        requeued_for = pod.requeued_for | reasons
        return replace(pod, n_requeues=n_requeues, requeued_s=now_s, requeued_for=requeued_for)

    def _n_fitting(
        self, pods: CandidateGroup, snapshot: ClusterSnapshot, budget: RatingBudget
    ) -> dict[str, int] | None:
        """Drop the nodes that do not fit any more; return how many pods fit on each other.

        None as in `_fitting`.
        """
        names = pods.candidates
        views = [view for name in names if (view := snapshot.view(name)) is not None]
        rated = self._rated(pods.viewpoint, views, budget)
        if rated is None:
            return None
        fitting = [v for v, rating in zip(views, rated, strict=True) if isinstance(rating, Rank)]
        pods.candidates = {view.name: pods.candidates[view.name] for view in fitting}
        return {view.name: view.free.bit_count() // pods.viewpoint.size_gpus for view in fitting}

    def _split_off_owners(self, names: Iterable[str], cluster: LiveCluster) -> None:
        """A pod that has a claim on one of the nodes may use more there than others."""
        owners = {owner for name in names for _, _, owner in cluster.devices(name)}
        for uid in sorted(owner for owner in owners if owner in self._group_keys):
            shape, key = self._group_keys[uid]
            pods = self._groups[shape].candidate_groups[key]
            if not pods.viewpoint.uid:
                self.leave(uid)
                viewpoint = replace(pods.viewpoint, uid=uid)
                self._join(uid, shape, viewpoint, pods.left_out).take_over(pods)

    def _join(self, uid: str, shape: Shape, viewpoint: PodRequest, left_out: int) -> CandidateGroup:
        key = viewpoint.priority, left_out, viewpoint.uid
        group = self._groups.setdefault(shape, ShapeGroup())
        pods = group.candidate_groups.setdefault(key, CandidateGroup(viewpoint, left_out))
        pods.uids[uid] = None
        self._group_keys[uid] = shape, key
        return pods

    def _trim_numbers(self, n_nodes: int) -> None:
        """Renumber the nodes where many that had numbers are gone.

        Until it is filtered again, each pod then counts as requested on all nodes.
        """
        if len(self._numbers) <= 2 * n_nodes + SPARE_NUMBERS:
            return
        self._numbers = NodeNumbers()
        for uid, pod in self._pods.items():
            self._pods[uid] = replace(pod, requeued_for=0)
        for shape, group in self._groups.items():
            candidate_groups, group.candidate_groups = group.candidate_groups, {}
            for pods in candidate_groups.values():
                for uid in pods.uids:
                    self._join(uid, shape, pods.viewpoint, 0).take_over(pods)


class _Look:
    """One look for pods to requeue: the cluster then, and what may be rated."""

    def __init__(self, snapshots: SnapshotCache, now_s: float) -> None:
        self.snapshots = snapshots
        self.now_s = now_s
        self.all_nodes = RatingBudget.of_work(MAX_LOOK_WORK)
        self.candidates = RatingBudget.of_work(MAX_WORK)
