"""Engines over small described clusters, for the tests of this folder.

What a live extender awaits happens at once here: each Binding is accepted, each member of a group
is seen and planned for when filter is called for it, and its binds come with those of the others.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from extender.bind import BindCall, HoldBind, ReadPod, WriteResult, Written
from extender.embedded import ClusterSpec, lay_out, node_facts
from extender.engine import Engine, Gateway
from extender.engine.events import (
    BindHeld,
    BindingWritten,
    BindPodRead,
    BindRequested,
    FreshnessSet,
    NodesListed,
    NominationsListed,
    PendingListed,
    PodDeleted,
    PodsListed,
)
from extender.protocol import Answer, Verb
from extender.rules import Rules
from extender.state import HOSTNAME, ZONE, LiveCluster, NodeRecord, NodeResource, build_machine_type
from kube.objects import NodeFacts
from tests.unit.extender.feeds import hold, report
from tests.unit.extender.pods import GPU, args, binding, pod
from topology.annotations import DevicesReport, UnhealthyDevice
from topology.groups import domain_path
from topology.model import UNKNOWN_WORTH, encode_topology, node_worth
from topology.model import names as keys
from topology.node_affinity import KnownLabels
from topology.value import DEFAULT_DEMAND

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from extender.embedded import EmbeddedNode
    from extender.placement import RatingBudget

RULES = Rules(
    resources=(GPU,),
    candidate_limit=100,
    loss_bounds=(0.02, 0.10, 0.30),
    demand=DEFAULT_DEMAND,
    staleness_bound_s=60.0,
    assume_s=30.0,
)


def spec(*groups: dict[str, Any]) -> ClusterSpec:
    """A cluster of these groups; by default two V100 machines and one without NVLink."""
    default = ({"count": 2, "machine": "dgx-1-v100"}, {"count": 1, "machine": "8x-l4"})
    return ClusterSpec.model_validate({"groups": list(groups or default)})


_machine = lru_cache(build_machine_type)
"""A value, made once for all tests."""


def _record(node: EmbeddedNode, rules: Rules) -> NodeRecord:
    """The node, its machine type named after its group; its path without zones, which are dealt."""
    topology, manager = node.topology, node.manager
    machine, worth = None, UNKNOWN_WORTH
    if topology is not None:
        machine = _machine(topology, rules.demand)
        worth = node_worth(topology.gpus, rules.gpu_worth).per_device
    report = DevicesReport(
        unhealthy=tuple(UnhealthyDevice(one, "described") for one in node.unhealthy),
        policy=None if manager is None else manager.policy,
        scope=None if manager is None else manager.scope,
    )
    labels = KnownLabels().plus(HOSTNAME, node.name).plus(ZONE, node.zone)
    for key, value in node.labels.items():
        labels = labels.plus(key, value)
    served = NodeResource.of(
        node.resource, node.ids, machine=machine, label=node.group, worth=worth, report=report
    )
    return NodeRecord(
        name=node.name,
        zone=node.zone,
        resources=(served,),
        has_soft_taint=node.prefer_no_schedule,
        report=report,
        problems=(),
        fingerprint=0,
        path=domain_path(node.labels, rules.group_families),
        labels=labels,
    )


def described(nodes: Sequence[EmbeddedNode], rules: Rules = RULES) -> LiveCluster:
    """A cluster of these nodes, fresh for good."""
    resources = tuple({node.resource: None for node in nodes})
    cluster = LiveCluster(
        resources, demand=rules.demand, gpu_worth=rules.gpu_worth, families=rules.group_families
    )
    for node in nodes:
        cluster.put_node(_record(node, rules))
    cluster.set_freshness(is_synced=True, observed_at_s=None)
    return cluster


def see_cluster(gateway: Gateway, cluster: ClusterSpec, at_s: float = 0.0) -> None:
    """The watches list such a cluster, without pods: what a decision log can replay."""
    rules = gateway.engine.rules
    gateway.handle(NodesListed(node_facts(cluster, rules)))
    gateway.handle(PodsListed(()))
    gateway.handle(NominationsListed(()))
    gateway.handle(PendingListed((), at_s))
    gateway.handle(FreshnessSet(is_synced=True, observed_at_s=None))


class SteppedEngine(Engine):
    """Takes every step itself."""

    def __init__(self, nodes: Sequence[EmbeddedNode], rules: Rules = RULES) -> None:
        super().__init__(described(nodes, rules), rules)
        self.gateway = Gateway(self)
        self.members: set[str] = set()
        self.manifests: dict[str, dict[str, Any]] = {}
        self.groups.keep_listed(())

    def answer(
        self, verb: Verb, body: bytes, now_s: float, budget: RatingBudget | None = None
    ) -> Answer:
        """Answer any call."""
        if verb is Verb.BIND:
            return bind_at_once(self.gateway, body, now_s)
        if verb is Verb.PREEMPT:
            step = self.preemptions.begin(body, now_s)
            return step if isinstance(step, Answer) else self.preemptions.abandon(step, "none here")
        answer = super().answer(verb, body, now_s, budget)
        if verb is not Verb.FILTER or not answer.pod_uid:
            return answer
        self.manifests[answer.pod] = json.loads(body)["Pod"]
        request = self.pending.recall(answer.pod_uid, answer.pod)
        if request is None or not request.waits_for_others or answer.reason is None:
            return answer
        self.members.add(request.uid)
        self.groups.see(request, now_s)
        self.groups.expire(now_s)
        self.groups.due(now_s)
        return super().answer(verb, body, now_s, budget)

    def end(self, uid: str) -> None:
        """The watch no longer shows the pod."""
        self.gateway.handle(PodDeleted(uid))

    def read_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod that filter was called for, with its node and plan."""
        found = self.manifests.get(f"{namespace}/{name}")
        if found is None:
            return None
        meta, spec = found["metadata"], found["spec"]
        bound = self.cluster.bound(meta["uid"])
        if bound is not None:
            plan = {} if bound.plan_text is None else {keys.PLAN: bound.plan_text}
            meta = meta | {"annotations": meta.get("annotations", {}) | plan}
            spec = spec | {"nodeName": bound.node}
        return json.dumps(found | {"metadata": meta, "spec": spec}).encode()


class Shell:
    """What `extender.http` needs of a live extender, over any engine."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def bind(self, body: bytes) -> Answer:
        """Bind."""
        return replace(bind_at_once(self._gateway, body, 1000.0), own_s=0.001)

    async def preempt(self, body: bytes) -> Answer:
        """Preempt."""
        answer = self._gateway.engine.answer(Verb.PREEMPT, body, 1000.0)
        return replace(answer, own_s=0.001)

    async def read_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod, where the engine keeps them."""
        engine = self._gateway.engine
        return engine.read_pod(namespace, name) if isinstance(engine, SteppedEngine) else None


def bind_at_once(gateway: Gateway, body: bytes, now_s: float) -> Answer:
    """Bind: what is written is accepted where the node is known."""
    engine = gateway.engine
    step = gateway.handle(BindRequested(BindCall.decode(body), now_s))
    while not isinstance(step, Answer):
        if isinstance(step, HoldBind):
            for uid in engine.members if isinstance(engine, SteppedEngine) else ():
                engine.groups.arrive(uid)
            step = gateway.handle(BindHeld(step, now_s))
        elif isinstance(step, ReadPod):
            step = gateway.handle(BindPodRead(step, None, now_s))
        else:
            is_known = step.node in engine.cluster.snapshot.nodes
            result = WriteResult.ACCEPTED if is_known else WriteResult.REJECTED
            step = gateway.handle(BindingWritten(step, Written(result), now_s))
    return step


def engine(*groups: dict[str, Any], **rules: Any) -> SteppedEngine:
    """An engine over them."""
    return SteppedEngine(lay_out(spec(*groups)), replace(RULES, **rules))


def answer_of(engine: SteppedEngine, verb: Verb, body: bytes, now_s: float = 0.0) -> Any:
    """The JSON of an answer."""
    return json.loads(engine.answer(verb, body, now_s).body)


def names(engine: SteppedEngine) -> list[str]:
    """All nodes."""
    return list(engine.cluster.snapshot.nodes)


def bind(engine: SteppedEngine, uid: str, node: str, n_gpus: int, **annotations: str) -> Answer:
    """Filter and bind one pod."""
    content = pod(n_gpus, uid=uid, **annotations)
    engine.answer(Verb.FILTER, args(content, [node]), 0.0)
    return engine.answer(Verb.BIND, binding(uid, node), 0.0)


def report_devices(
    cluster: LiveCluster,
    node: EmbeddedNode,
    *,
    unhealthy: Iterable[str] = (),
    held: Iterable[str] = (),
) -> None:
    """The node reports bad devices, and devices of an unknown pod."""
    assert node.topology is not None
    gpus = zip(node.topology.gpus, node.ids, strict=True)
    topology = replace(node.topology, gpus=tuple(replace(gpu, uuid=one) for gpu, one in gpus))
    holds = (hold("x", *held),) if held else ()
    cluster.update_node(
        NodeFacts(
            name=node.name,
            uid=f"uid-{node.name}",
            zone=node.zone,
            allocatable={node.resource: len(node.ids)},
            topology=encode_topology(topology),
            devices=report(*unhealthy, holds=holds),
            has_soft_taint=node.prefer_no_schedule,
        )
    )


def owned(cluster: LiveCluster, uid: str) -> dict[str, str]:
    """The devices of a pod, with their states."""
    rows = (row for name in cluster.snapshot.nodes for row in cluster.devices(name))
    return {one: state.value for one, state, owner in rows if owner == uid}
