"""A live engine, an API server and the watch between them, in memory and in any order.

Everything that takes time in a real cluster is taken apart here: a request reaches the server at
one moment and its answer the engine at another, or never; watch events come later than what they
show; a write whose answer was given up may still come true.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from extender.bind import BindCall, ReadPod, WriteBinding, WriteResult, Written
from extender.decision_log import DecisionLog
from extender.engine import Engine, Gateway
from extender.engine.events import (
    BindAbandoned,
    BindingWritten,
    BindPodRead,
    BindRequested,
    FreshnessSet,
    NodesListed,
    NominationsListed,
    PodDeleted,
    PodFetched,
    PodsListed,
    PodUpdated,
    TimePassed,
    VerbCalled,
)
from extender.protocol import Answer, Outcome, Verb
from extender.state import LiveCluster, Probe
from kube.objects import NodeFacts, PodFacts, read_pod
from tests.unit.extender.api_server import FakeApiServer
from tests.unit.extender.engines import RULES
from tests.unit.extender.pods import GPU, args, binding
from topology.annotations import decode_plan, pod_keys
from topology.model import encode_topology, names
from topology.recordings import load_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from extender.errors import DecisionLogError
    from tests.unit.extender.api_server import FakePod

__all__ = ["LiveWorld", "node_facts"]


def node_facts(name: str, machine: str | None = "dgx-1-v100", *, zone: str = "a") -> NodeFacts:
    """A node of a recorded machine whose devices bear its name; by count where there is none."""
    if machine is None:
        return NodeFacts(name, f"uid-{name}", zone, {GPU: 4}, None, None, has_soft_taint=False)
    topology = load_recording(machine)
    gpus = tuple(replace(gpu, uuid=f"{name}-{i}") for i, gpu in enumerate(topology.gpus))
    text = encode_topology(replace(topology, gpus=gpus))
    count = {GPU: len(gpus)}
    return NodeFacts(
        name, f"uid-{name}", zone, count, text, None, has_soft_taint=False, capacity=count
    )


@dataclass
class _Call:
    """A step under way: not sent, or sent and its answer waiting."""

    step: ReadPod | WriteBinding
    answer: Callable[[], Any] | None = None


class LiveWorld:
    """What happens is up to `rng`; what must hold is checked after each event."""

    def __init__(self, rng: Random, nodes: Iterable[NodeFacts]) -> None:
        self.rng = rng
        self.now_s = 1000.0
        self.file = io.StringIO()
        self.log_ended: list[DecisionLogError] = []
        cluster = LiveCluster(RULES.resources, demand=RULES.demand)
        engine = Engine(cluster, RULES)
        log = DecisionLog(self.file, engine.rules, self.log_ended.append)
        self.gateway = Gateway(engine, record=log.record)
        self.server = FakeApiServer()
        self.nodes = [node.name for node in nodes]
        self.accepted: set[tuple[str, str]] = set()
        self.outcomes: list[Answer] = []
        self._events: list[Callable[[], None]] = []
        self._calls: list[_Call] = []
        self._late: list[WriteBinding] = []
        self._n_pods = 0
        self.gateway.handle(NodesListed(tuple(nodes)))
        self.gateway.handle(PodsListed(()))
        self.gateway.handle(NominationsListed(()))
        self.deliver()

    def deliver(self) -> None:
        """The watches have delivered everything up to now."""
        while self._events:
            self._events.pop(0)()
        self.gateway.handle(FreshnessSet(is_synced=True, observed_at_s=self.now_s))
        for effect in self.gateway.cluster.take_effects():
            if isinstance(effect, Probe):
                self._probe(effect)

    # What may happen.

    def act(self) -> None:
        """One event, drawn."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (6, self._create),
            (6, self._filter),
            (10, self._begin),
            (14, self._send),
            (12, self._answer),
            (4, self._lose_answer),
            (1, self._abandon),
            (5, self._come_late),
            (8, self._tell),
            (2, self._touch),
            (3, self._delete),
            (1, self.deliver),
        ]
        weights, choices = zip(*actions, strict=True)
        (action,) = self.rng.choices(choices, weights)
        self.now_s += 0.01
        action()
        self.check()

    def _create(self) -> None:
        """Names are few, so that they are used again."""
        name = f"pod-{self.rng.randrange(8)}"
        if f"default/{name}" not in self.server.pods:
            self._n_pods += 1
            size = self.rng.choice((None, 1, 2, 4, 4, 4, 8))
            self.server.create(size, uid=f"u{self._n_pods}", name=name)

    def _filter(self) -> None:
        pod = self._any_pod()
        if pod is not None and pod.node is None:
            body = args(json.loads(pod.as_json()), self.nodes)
            self.gateway.handle(VerbCalled(Verb.FILTER, body, self.now_s))

    def _begin(self) -> None:
        """Two schedulers may bind one pod, also by the uid of a pod that is gone."""
        pod = self._any_pod()
        if pod is not None:
            uid = pod.uid if self.rng.random() < 0.9 else f"u{self.rng.randrange(self._n_pods)}"
            name = pod.content["metadata"]["name"]
            # Mostly the same node again, as a scheduler does.
            again = self.nodes[int(name[-1]) % len(self.nodes)]
            node = again if self.rng.random() < 0.7 else self.rng.choice(self.nodes)
            body = binding(uid, node, PodName=name)
            self._go_on(self.gateway.handle(BindRequested(BindCall.decode(body), self.now_s)))

    def _send(self) -> None:
        """A request reaches the server; its answer is on its way."""
        call = self._any_call(is_sent=False)
        if call is None:
            return
        step = call.step
        if isinstance(step, ReadPod):
            body = self.server.read(step)
            call.answer = lambda: self.gateway.handle(BindPodRead(step, body, self.now_s))
        else:
            written = self._write(step) if self.rng.random() < 0.9 else self._busy()
            call.answer = lambda: self.gateway.handle(BindingWritten(step, written, self.now_s))

    def _answer(self) -> None:
        call = self._any_call(is_sent=True)
        if call is not None and call.answer is not None:
            self._calls.remove(call)
            self._go_on(call.answer())

    def _lose_answer(self) -> None:
        """A write times out: it came true, or will, or never does."""
        call = next((one for one in self._calls if isinstance(one.step, WriteBinding)), None)
        if call is not None and isinstance(call.step, WriteBinding):
            self._calls.remove(call)
            if call.answer is None:
                self._late.append(call.step)
            written = Written(WriteResult.UNKNOWN, "timeout")
            self._go_on(self.gateway.handle(BindingWritten(call.step, written, self.now_s)))

    def _abandon(self) -> None:
        if self._calls:
            call = self.rng.choice(self._calls)
            self._calls.remove(call)
            if call.answer is None and isinstance(call.step, WriteBinding):
                self._late.append(call.step)
            self._go_on(self.gateway.handle(BindAbandoned(call.step, "out of time", self.now_s)))

    def _come_late(self) -> None:
        """A write whose caller gave up reaches the server, or is dropped for good."""
        if self._late:
            step = self._late.pop(self.rng.randrange(len(self._late)))
            if self.rng.random() < 0.8:
                self._write(step)

    def _tell(self) -> None:
        """The watch delivers its next event."""
        if self._events:
            self._events.pop(0)()

    def _touch(self) -> None:
        """A client writes a pod, rarely what it requests."""
        pod = self._any_pod()
        if pod is not None:
            pod.version += 1
            if pod.node is None and self.rng.random() < 0.3:
                pod.content["metadata"]["annotations"] = {pod_keys.AFFINITY: "none"}

    def _delete(self) -> None:
        pod = self._any_pod()
        if pod is not None:
            del self.server.pods[f"default/{pod.content['metadata']['name']}"]
            if pod.node is not None:
                uid = pod.uid
                self._events.append(lambda: self.gateway.handle(PodDeleted(uid)))

    # How it ends.

    def settle(self) -> None:
        """All requests end, what is late is dropped, the watches catch up, assumptions expire."""
        while self._calls:
            self._send()
            self._answer()
        self._late.clear()
        self.deliver()
        self.now_s += RULES.assume_s + 1.0
        for _ in range(2):
            self.deliver()
            self.gateway.handle(TimePassed(self.now_s))
        self.deliver()

    def held(self) -> dict[str, set[str]]:
        """What the server's pods have by their plans, by uid."""
        return {pod.uid: _ids(pod) for pod in self.server.pods.values() if _ids(pod)}

    def check(self) -> None:
        """No device is in two live plans."""
        ids = [one for held in self.held().values() for one in held]
        assert len(ids) == len(set(ids))

    # Inside.

    def _go_on(self, said: Any) -> None:
        if isinstance(said, Answer):
            self.outcomes.append(said)
            if said.outcome is Outcome.OK:
                assert (said.pod_uid, said.node) in self.accepted
        else:
            self._calls.append(_Call(said))

    def _busy(self) -> Written:
        """The server refuses a write, or it could not be sent."""
        return Written(self.rng.choice((WriteResult.REJECTED, WriteResult.UNSENT)), "too busy")

    def _write(self, step: WriteBinding) -> Written:
        written = self.server.write(step)
        if written.result is WriteResult.ACCEPTED:
            self.accepted.add((step.uid, step.node))
            facts = self._facts(self.server.pods[f"{step.namespace}/{step.name}"])
            self._events.append(lambda: self.gateway.handle(PodUpdated(facts)))
        return written

    def _facts(self, pod: FakePod) -> PodFacts:
        meta = pod.content["metadata"]
        wants = "resources" in pod.content["spec"]["containers"][0]
        plan = pod.plan.get(names.PLAN)
        return PodFacts(
            pod.uid, "default", meta["name"], str(pod.version), plan, None, may_request=wants
        )

    def _probe(self, probe: Probe) -> None:
        pod = self.server.pods.get(f"{probe.namespace}/{probe.name}")
        if pod is None or pod.uid != probe.uid:
            self.gateway.handle(PodDeleted(probe.uid))
        else:
            self.gateway.handle(PodFetched(read_pod(json.loads(pod.as_json()))))

    def _any_pod(self) -> FakePod | None:
        return self.rng.choice(list(self.server.pods.values())) if self.server.pods else None

    def _any_call(self, *, is_sent: bool) -> _Call | None:
        calls = [one for one in self._calls if (one.answer is not None) == is_sent]
        return self.rng.choice(calls) if calls else None


def _ids(pod: FakePod) -> set[str]:
    text = pod.plan.get(names.PLAN)
    return set() if pod.node is None or text is None else set(decode_plan(text).ids)
