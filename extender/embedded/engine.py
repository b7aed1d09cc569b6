"""The engine over an embedded cluster, which is its own API server.

It answers every verb synchronously, also bind and preempt, whose steps the embedded cluster takes
itself, and the end of a pod. Pods are bound by the same code as on a live cluster. No pod can be
evicted here: a preemption reads no pods.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from extender.bind import BindCall, HoldBind, ReadPod
from extender.embedded.known_pods import write_pod
from extender.embedded.spec import lay_out
from extender.embedded.state import EmbeddedCluster
from extender.engine import Engine
from extender.protocol import Answer, Outcome, Reason, Verb
from topology.errors import quote

if TYPE_CHECKING:
    from extender.embedded.spec import ClusterSpec
    from extender.placement import RatingBudget
    from extender.rules import Rules
    from extender.state import BoundPod
    from extender.unschedulable import UnschedulablePod

__all__ = ["EmbeddedEngine", "make_engine"]


class EmbeddedEngine(Engine):
    """The verbs over an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster, rules: Rules) -> None:
        super().__init__(cluster, rules, at_once=True)
        self._embedded = cluster

    @property
    def cluster(self) -> EmbeddedCluster:
        """The state that is decided from, and changed."""
        return self._embedded

    def answer(
        self, verb: Verb, body: bytes, now_s: float, budget: RatingBudget | None = None
    ) -> Answer:
        """Answer one call; `body` is the request as it came (for END, the pod's uid)."""
        if verb is Verb.BIND:
            return self._bind(body, now_s)
        if verb is Verb.PREEMPT:
            return self._preempt(body, now_s)
        if verb is Verb.END:
            return self._end_pod(body)
        return super().answer(verb, body, now_s, budget)

    def read_pod(self, namespace: str, name: str) -> bytes | None:
        """The JSON of a pod that was filtered and is bound or waits, else None. O(pods)."""
        bound = next((pod for pod in self.cluster.pods_bound() if _is(pod, namespace, name)), None)
        waits = (pod for pod in self.unschedulable.pods() if _is(pod, namespace, name))
        found = bound or next(waits, None)
        request = None if found is None else self.recall(found.uid, f"{namespace}/{name}")
        return None if request is None else json.dumps(write_pod(request, bound)).encode()

    def _bind(self, body: bytes, now_s: float) -> Answer:
        step = self.member_binds.begin(BindCall.decode(body), now_s)
        while not isinstance(step, Answer):
            if isinstance(step, HoldBind):
                # Nothing can fail here between the Bindings of a group, so that none waits.
                step = self.member_binds.held(step, now_s)
            elif isinstance(step, ReadPod):
                # A pod that is bound was answered for; of the others nothing is known here.
                step = self.binds.read(step, None, now_s)
            else:
                step = self.binds.written(step, self.cluster.write_binding(step))
        self.bind_answered(step)
        return step

    def _preempt(self, body: bytes, now_s: float) -> Answer:
        step = self.preemptions.begin(body, now_s)
        if isinstance(step, Answer):
            return step
        return self.preemptions.abandon(step, "the embedded cluster has none")

    def _end_pod(self, body: bytes) -> Answer:
        uid = body.decode(errors="replace")
        self.pod_ended(uid)
        pod = self.cluster.end(uid)
        if pod is None:
            detail = f"pod {quote(uid)} is not bound, expected the uid of a bound pod"
            return self.failure(Verb.END, Reason.UNKNOWN_POD, detail)
        answer = Answer(
            Verb.END,
            Outcome.OK,
            json.dumps(pod.as_json()).encode(),
            self.cluster.snapshot.generation,
        )
        return replace(answer, pod=f"{pod.namespace}/{pod.name}", pod_uid=uid, node=pod.node)


def _is(pod: BoundPod | UnschedulablePod, namespace: str, name: str) -> bool:
    return (pod.namespace, pod.name) == (namespace, name)


def make_engine(spec: ClusterSpec, rules: Rules) -> EmbeddedEngine:
    """An engine over the described cluster, nothing placed. Raises `ClusterSpecError`."""
    cluster = EmbeddedCluster(
        lay_out(spec),
        demand=rules.demand,
        gpu_worth=rules.gpu_worth,
        families=rules.group_families,
    )
    return EmbeddedEngine(cluster, rules)
