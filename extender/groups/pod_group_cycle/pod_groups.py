"""Members of Kubernetes' own groups: what each may have beside its siblings.

Filter answers a member one node alone, so that it is known where kube-scheduler counts it, and what
the siblings of one cycle were answered is not free for the next one: two of them never count on the
same devices, and sets are chosen jointly, so that none is refused for a choice that could have been
another one (`extender.groups.pod_group_cycle.joint_sets`). Nothing is claimed meanwhile: cycles are
simulations. The first bind call of a member shows that its group passed, and where its siblings
are; then the devices of all of them are assumed, each until its own bind call, the next filter call
for it, or `assume_s`. A member without devices there is planned as every other pod. Once a group
has evicted pods all its members are nominated: what a sibling that counts has claimed by that is
free beside it, or its devices would count twice.

Bounded: the members of `MAX_GROUPS` groups, for `assume_s` after their last call. It lets no pod
wait and evicts none.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extender.groups.pod_group_cycle.cycles import Cycles
from extender.groups.pod_group_cycle.joint_sets import JointSets
from extender.placement import Refusal, plan_bind
from extender.snapshot import only

if TYPE_CHECKING:
    from collections.abc import Collection

    from extender.groups.members.group import GroupKey
    from extender.placement import Rater
    from extender.protocol import PodRequest
    from extender.snapshot import ClusterSnapshot
    from extender.state import LiveCluster
    from topology.annotations import Plan

__all__ = ["BesideSiblings", "PodGroups"]

MAX_GROUPS = 256
"""Groups whose cycles are remembered; the one called for longest ago is dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class BesideSiblings:
    """The cluster as a member may use it, and the nodes of its siblings.

    `failed` are the GPU models on which members found no node in earlier runs.
    """

    snapshot: ClusterSnapshot
    siblings: tuple[str, ...]
    failed: frozenset[str]


class PodGroups:
    """The PodGroups of one engine. Not thread-safe: called from the event loop only."""

    def __init__(self, cluster: LiveCluster, rater: Rater, *, assume_s: float) -> None:
        self._cluster = cluster
        self._rater = rater
        self._assume_s = assume_s
        self._sets = JointSets(rater)
        self._groups: OrderedDict[GroupKey, Cycles] = OrderedDict()
        # Of each member, its group and when filter was called for it last; in that order.
        self._key_of: OrderedDict[str, tuple[GroupKey, float]] = OrderedDict()
        self._reserved: dict[str, Plan] = {}

    @property
    def n_members(self) -> int:
        """Members that are remembered."""
        return len(self._key_of.keys() | self._reserved.keys())

    def ask(self, request: PodRequest, now_s: float) -> BesideSiblings:
        """Filter is called for a member."""
        self._give_back(request.uid)
        key = request.namespace, request.pod_group
        if self._key_of.get(request.uid, (key, now_s))[0] != key:
            self._drop(request.uid)
        self._key_of[request.uid] = key, now_s
        self._key_of.move_to_end(request.uid)
        cycles = self._groups.setdefault(key, Cycles())
        self._groups.move_to_end(key)
        if len(self._groups) > MAX_GROUPS:
            self._forget(next(iter(self._groups)))
        cycles.call(request.uid, now_s)
        counted = list(cycles.counted(request.uid))
        snapshot = self._cluster.snapshot_for(request, {other.uid for _, other in counted})
        beside: dict[str, list[PodRequest]] = {}
        for node, other in counted:
            if node in snapshot.positions:
                beside.setdefault(node, []).append(other)
        views = [
            self._sets.beside(snapshot.nodes[node], others, request)
            for node, others in beside.items()
        ]
        snapshot = snapshot.with_views(views, snapshot.generation)
        return BesideSiblings(snapshot, tuple(beside), frozenset(cycles.failed))

    def answered(self, request: PodRequest, node: str) -> None:
        """Filter names this node alone to the member it was just called for."""
        self._groups[request.namespace, request.pod_group].answered(request, node)

    def failed_on(self, request: PodRequest, models: Collection[str]) -> None:
        """The member found no node with GPUs of its siblings' models, though others have one."""
        self._groups[request.namespace, request.pod_group].failed |= {*models}

    def retry_models(self, request: PodRequest) -> None:
        """All models have failed: each is tried again."""
        self._groups[request.namespace, request.pod_group].failed.clear()

    # Bind.

    def reserve(self, request: PodRequest, node: str, now_s: float) -> None:
        """A member's bind call has come: keep devices for it, and for its siblings in the cycle."""
        cycles = self._groups.get((request.namespace, request.pod_group))
        if cycles is None or self.reserved(request.uid) is not None:
            return
        by_node: dict[str, list[PodRequest]] = {}
        nodes = cycles.chosen(request.uid, node)
        for uid in sorted(nodes, key=lambda one: one != request.uid):
            if self._cluster.pods.get(uid) is None:
                by_node.setdefault(nodes[uid], []).append(cycles.requests[uid])
        for name, requests in by_node.items():
            self._reserve_on(name, requests, now_s + self._assume_s)

    def reserved(self, uid: str) -> Plan | None:
        """The devices that are kept for a member; None: none are."""
        return self._reserved.get(uid)

    def bound(self, uid: str) -> None:
        """The member has a node, or a bind in flight that keeps its devices."""
        self._reserved.pop(uid, None)
        self._drop(uid)

    def gone(self, uid: str) -> None:
        """The pod is gone, or its bind call came to nothing."""
        self._give_back(uid)
        self._drop(uid)

    # Ending.

    def expire(self, now_s: float) -> None:
        """Cycles end with time, as their members do; so do devices that are kept no longer."""
        while self._groups:
            key, cycles = next(iter(self._groups.items()))
            if now_s < cycles.called_s + self._assume_s:
                break
            self._forget(key)
        while self._key_of:
            uid, (_, called_s) = next(iter(self._key_of.items()))
            if now_s < called_s + self._assume_s:
                break
            self._drop(uid)
        for uid in [uid for uid in self._reserved if self._cluster.pods.get(uid) is None]:
            del self._reserved[uid]

    # Inside.

    def _reserve_on(self, node: str, requests: list[PodRequest], ends_s: float) -> None:
        """Keep sets for all of them, or for as many of the first ones as fit."""
        uids = {one.uid for one in requests}
        snapshot = self._cluster.snapshot_for(replace(requests[0], uid=""), uids)
        view = snapshot.view(node)
        if view is None:
            return
        masks = self._sets.masks(view, requests)
        while masks is None and requests:
            requests = requests[:-1]
            masks = self._sets.masks(view, requests)
        placements: list[tuple[PodRequest, Plan]] = []
        for request, mask in zip(requests, masks or (), strict=True):
            generation, free = snapshot.generation, only(view, mask)
            plan = plan_bind(request, free, rater=self._rater, generation=generation)
            if not isinstance(plan, Refusal):
                placements.append((request, plan))
        if self._cluster.assume_all(placements, deadline_s=ends_s) is None:
            for request, plan in placements:
                self._drop(request.uid)
                self._reserved[request.uid] = plan

    def _give_back(self, uid: str) -> None:
        if self._reserved.pop(uid, None) is not None and self._cluster.bound(uid) is None:
            self._cluster.pods.forget(uid)

    def _drop(self, uid: str) -> None:
        known = self._key_of.pop(uid, None)
        if known is not None and known[0] in self._groups:
            self._groups[known[0]].drop(uid)

    def _forget(self, key: GroupKey) -> None:
        del self._groups[key]
        for uid in [uid for uid, (one, _) in self._key_of.items() if one == key]:
            del self._key_of[uid]
