"""Tracks pods: assigned ones, those with a binding in flight, and nominated ones.

It knows which pods are on a node, which are nominated to it, and which nodes an input concerns. It
knows nothing of devices (`extender.state.accounting`) and never decides that a pod fits.

The rules:

- A pod is bound once the API server accepted its binding or a watch showed it. Until then its plan
  is an assumption, which ends at its deadline, but only when the watches have passed the deadline
  and no call that might write it is in flight: they would have shown a binding that succeeded.
- A list may be older than a binding: a pod that no watch has shown yet is not gone because a list
  lacks it. If none has at its deadline, it is read in full (`Probe`). If that shows no node, the
  pod goes: what was accepted is lost, as where the store was restored.
- While a binding by count is in flight, its node is unconfirmed. A watch event of the pod does not
  have its node: its plan does, or else a reading in full; until then the count is kept there.
- A pod that may request devices and has no plan that can be read is read in full, and again at each
  sign of change as long as its devices are not known.
- A nomination counts as long as nothing else is known of its pod.
- A pod leaves when its containers have stopped, or after its kubelet had time to stop them. Not so
  where the first that is seen of its deletion is a grace period of 0: the API server removes it at
  once. It keeps its devices for `REMOVED_S`; without a plan until its node's next report at most,
  which names what such pods hold.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

from extender.state.effects import Probe
from extender.state.nominations import Nominations
from extender.state.pod_record import (
    BoundPod,
    PodBody,
    PodRecord,
    PodStage,
    kept_plan,
    read_body,
    read_plan,
)
from topology.annotations import encode_plan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from extender.protocol import PodRequest
    from extender.state.effects import Effect
    from extender.state.nominations import Nomination
    from kube.objects import PodFacts, PodObject
    from topology.annotations import Plan

__all__ = ["PodTracker"]

LOOK_AGAIN_S = 10.0
"""How long after it was probed a pod that no watch has shown is probed again."""
REMOVED_S = 10.0
"""How long a pod that was removed by force keeps its devices. Its kubelet gives its containers 1 s
(Kubernetes 1.36, kubelet/pod_workers.go, calculateEffectiveGracePeriod); the rest is for the watch
to reach a busy node and for the driver to release the GPUs. Chosen, not measured."""


class PodTracker:
    """The pods. `dirty_nodes` are the nodes that inputs concerned, `effects` what is to be done.

    `n_ended` counts by known node the pods that ended there since it became known. `nodes` are
    those, kept up to date by the caller. `nominations` are all that the watch shows.
    """

    def __init__(self, resources: Sequence[str], nodes: Mapping[str, object]) -> None:
        self._resources = tuple(resources)
        self._nodes = nodes
        self._numbers = count(1)
        self._pods: dict[str, PodRecord] = {}
        self._unseen: dict[str, PodRecord] = {}
        self._removed: dict[str, PodRecord] = {}
        self._by_node: dict[str, dict[str, PodRecord]] = {}
        self.nominations = Nominations(self._numbers, self._mark_dirty)
        self.dirty_nodes: dict[str, None] = {}
        self.effects: dict[Effect, None] = {}
        self.n_ended: Counter[str] = Counter()

    # Reading.

    @property
    def n_bound(self) -> int:
        """Number of pods that are bound."""
        n_assumed = sum(pod.stage is PodStage.ASSUMED for pod in self._unseen.values())
        return len(self._pods) - n_assumed

    def get(self, uid: str) -> PodRecord | None:
        """A pod, or None."""
        return self._pods.get(uid)

    def on_node(self, node: str) -> Iterable[PodRecord]:
        """The pods on a node, as far as is known."""
        return self._by_node.get(node, _NO_PODS).values()

    def nominated_to(self, node: str) -> Sequence[Nomination]:
        """The pods that are nominated to a node and of which nothing else is known."""
        nominated = self.nominations.by_node.get(node)
        if nominated is None:
            return ()
        return [one for uid, one in nominated.items() if uid not in self._pods]

    def name_of(self, uid: str) -> str:
        """Namespace and name of a pod; empty for one that no watch has shown."""
        pod, one = self._pods.get(uid), self.nominations.by_uid.get(uid)
        if pod is not None:
            return f"{pod.namespace}/{pod.name}"
        return "" if one is None else one.request.full_name

    def node_of(self, uid: str) -> str | None:
        """The node that a pod is on, or else the one that it is nominated to."""
        pod = self._pods.get(uid)
        if pod is not None:
            return pod.node
        one = self.nominations.by_uid.get(uid)
        return None if one is None else one.node

    def nodes(self) -> Iterable[str]:
        """The nodes that pods are on, known or not."""
        return self._by_node.keys()

    def bound(self, uid: str) -> BoundPod | None:
        """The pod with its node, if the API server accepted or showed it and the node is known."""
        pod = self._pods.get(uid)
        if pod is None or pod.stage in _UNBOUND or pod.is_unconfirmed or pod.node is None:
            return None
        plan = pod.node_plan
        text = None if plan is None else encode_plan(plan)
        return BoundPod(uid, pod.namespace, pod.name, pod.node, text)

    # Inputs of the watches.

    def update(self, facts: PodFacts) -> None:
        """An assigned pod that has not ended, by its metadata."""
        pod = self._pods.get(facts.uid)
        plan_hash = None if facts.plan is None else hash(facts.plan)
        if facts.plan is None and not facts.may_request and (pod is None or pod.body is None):
            self.delete(facts.uid)
            return
        is_new = pod is None
        if pod is None:
            pod = self._add(PodRecord(facts.uid, facts.namespace, facts.name, next(self._numbers)))
        self._see_deletion(pod, facts.deletion_grace_s)
        if pod.stage is PodStage.SEEN and pod.plan_hash == plan_hash and not is_new:
            pod.reported = pod.reported if facts.allocated is None else hash(facts.allocated)
            if pod.has_unknown_devices or pod.is_unconfirmed:
                self.probe(pod)
            return
        node, is_expected = pod.node, self._is_expected(pod, facts, plan_hash)
        pod.reported = None if facts.allocated is None else hash(facts.allocated)
        if pod.plan is None or pod.plan_hash != plan_hash:
            pod.plan, pod.plan_hash = read_plan(facts.plan), plan_hash
        pod.was_probed = pod.is_doubted = False
        pod.stage, pod.deadline_s = PodStage.SEEN, None
        self._unseen.pop(pod.uid, None)
        self._removed.pop(pod.uid, None)
        if is_expected:
            return
        if pod.is_unconfirmed and pod.plan is not None:
            pod.body, pod.is_unconfirmed = None, False
        self._move(pod, node)
        if pod.node is None or pod.is_unconfirmed:
            self.probe(pod)

    def delete(self, uid: str) -> None:
        """A pod ended, was deleted, or was never there: its devices are free.

        Those of a pod that was removed by force stay with it for a while.
        """
        pod = self._pods.get(uid)
        if pod is not None and pod.deletion_grace_s == 0 and pod.stage is PodStage.SEEN:
            pod.stage, pod.deadline_s = PodStage.REMOVED, None
            self._removed[uid] = pod
        elif pod is not None and pod.stage is not PodStage.REMOVED:
            self._drop(uid)

    def node_reported(self, node: str) -> None:
        """A new report of the node's plugin names what pods without a plan hold.

        O(pods removed by force).
        """
        for uid, pod in tuple(self._removed.items()):
            if pod.node == node and pod.node_plan is None:
                self._drop(uid)

    def replace(self, pods: Iterable[PodFacts]) -> list[str]:
        """A complete list of the assigned pods; returns those that were seen and are gone.

        A pod whose binding was accepted, or is in flight, stays: the list may be older.
        """
        listed = {facts.uid: facts for facts in pods}
        gone = [
            uid
            for uid, pod in self._pods.items()
            if pod.stage is PodStage.SEEN and uid not in listed
        ]
        for uid in gone:
            self.delete(uid)
        for facts in listed.values():
            self.update(facts)
        return gone

    def read(self, pod: PodObject) -> None:
        """A pod read in full, as a `Probe` requested. Nothing for a pod that was lost since."""
        known = self._pods.get(pod.uid)
        if known is None:
            return
        if pod.node_name is None:
            if known.is_doubted:
                self._drop(pod.uid)
            return
        if pod.has_ended:
            self._drop(pod.uid)
            return
        node = known.node
        if known.stage is PodStage.ASSUMED:
            known.stage = PodStage.ACCEPTED
        known.body, known.is_unconfirmed = read_body(pod, pod.node_name, self._resources), False
        known.node_affinity = known.body.node_affinity
        # A sign of change may come before its devices are looked for: then it is read again.
        known.has_unknown_devices = known.was_probed = True
        self._move(known, node)

    # Bindings.

    def assume(self, request: PodRequest, plan: Plan, *, resource: str, deadline_s: float) -> None:
        """A binding is in flight; an earlier assumption of the same pod is replaced.

        A plan without containers keeps the count of devices alone.
        """
        old = self._pods.get(request.uid)
        number = next(self._numbers) if old is None else old.number
        self._drop(request.uid)
        pod = PodRecord(request.uid, request.namespace, request.name, number)
        pod.stage, pod.deadline_s = PodStage.ASSUMED, deadline_s
        pod.node_affinity = request.node_affinity
        if plan.containers:
            pod.plan, pod.plan_hash = kept_plan(plan), hash(encode_plan(plan))
        else:
            pod.body, pod.is_unconfirmed = PodBody(plan.node, ((resource, len(plan.ids)),)), True
        self._add(pod)
        self._unseen[pod.uid] = pod
        self._move(pod, None)

    def renew(self, uid: str, *, deadline_s: float) -> None:
        """The binding is written again: its assumption ends at `deadline_s` at the earliest."""
        pod = self._unseen.get(uid)
        if pod is not None and pod.stage is PodStage.ASSUMED and pod.deadline_s is not None:
            pod.deadline_s = max(pod.deadline_s, deadline_s)

    def confirm(self, uid: str) -> None:
        """The API server accepted the binding. Nothing for a pod that a watch has shown since."""
        pod = self._pods.get(uid)
        if pod is None:
            return
        pod.is_unconfirmed = False
        if pod.stage is PodStage.ASSUMED:
            pod.stage = PodStage.ACCEPTED
            self._move(pod, pod.node)

    def forget(self, uid: str) -> None:
        """The binding certainly came to nothing; the pod may have got another node than that."""
        pod = self._pods.get(uid)
        if pod is None:
            return
        if pod.stage is PodStage.ASSUMED:
            self._drop(uid)
        elif pod.is_unconfirmed:
            node = pod.node
            pod.body, pod.is_unconfirmed = None, False
            self._move(pod, node)

    def expire(self, now_s: float, observed_at_s: float, in_flight: Collection[str]) -> None:
        """Time passed; the watches are complete up to `observed_at_s`."""
        late = [
            pod
            for pod in self._unseen.values()
            if pod.deadline_s is not None and pod.deadline_s <= min(now_s, observed_at_s)
        ]
        for pod in late:
            if pod.stage is PodStage.ACCEPTED:
                pod.is_doubted = True
                self.probe(pod)
                pod.deadline_s = now_s + LOOK_AGAIN_S
            elif pod.uid not in in_flight:
                self._drop(pod.uid)
        for pod in tuple(self._removed.values()):
            if pod.deadline_s is None:
                pod.deadline_s = now_s + REMOVED_S
            elif pod.deadline_s <= now_s:
                self._drop(pod.uid)

    def probe(self, pod: PodRecord) -> None:
        """Request a reading in full."""
        pod.has_unknown_devices = pod.was_probed = True
        self.effects[Probe(pod.namespace, pod.name, pod.uid)] = None

    def probe_plans_for(self, node: str) -> None:
        """Pods whose plan names a node that is unknown may be on another one."""
        for pod in self.on_node(node):
            if pod.body is None and not pod.was_probed:
                self.probe(pod)

    # Inside.

    def _is_expected(self, pod: PodRecord, facts: PodFacts, plan_hash: int | None) -> bool:
        """Whether a watch shows what was confirmed: nothing follows from it for the pod's node.

        Not so where something else is to be reported or looked for at each sign of change.
        """
        return (
            pod.stage is PodStage.ACCEPTED
            and pod.plan is not None
            and pod.plan_hash == plan_hash
            and pod.node in self._nodes
            and not pod.has_unknown_devices
            and pod.reported is None
            and facts.allocated is None
        )

    def _see_deletion(self, pod: PodRecord, grace_s: int | None) -> None:
        """The pod may be under deletion now: a nominated pod may wait for its devices."""
        if pod.deletion_grace_s is None and grace_s is not None:
            pod.deletion_grace_s = grace_s
            if pod.node is not None and pod.node in self.nominations.by_node:
                self._mark_dirty(pod.node)

    def _drop(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._unseen.pop(uid, None)
            self._removed.pop(uid, None)
            node = pod.node
            if pod.stage is not PodStage.ASSUMED and node is not None and node in self._nodes:
                self.n_ended[node] += 1
            self._leave(pod, node)
            self._mark_nominated(uid)

    def _add(self, pod: PodRecord) -> PodRecord:
        self._pods[pod.uid] = pod
        self._mark_nominated(pod.uid)
        return pod

    def _move(self, pod: PodRecord, old_node: str | None) -> None:
        """What is known of a pod changed; it may be on another node now."""
        node = pod.node
        if node != old_node:
            self._leave(pod, old_node)
        if node is not None:
            self._by_node.setdefault(node, {})[pod.uid] = pod
            self._mark_dirty(node)

    def _leave(self, pod: PodRecord, node: str | None) -> None:
        if node is None:
            return
        self._mark_dirty(node)
        on_node = self._by_node[node]
        del on_node[pod.uid]
        if not on_node:
            del self._by_node[node]

    def _mark_nominated(self, uid: str) -> None:
        """Something else became known of a pod, or is known no longer."""
        one = self.nominations.by_uid.get(uid)
        if one is not None:
            self._mark_dirty(one.node)

    def _mark_dirty(self, node: str) -> None:
        self.dirty_nodes[node] = None


_UNBOUND = (PodStage.ASSUMED, PodStage.REMOVED)
_NO_PODS: Mapping[str, PodRecord] = {}
