"""Engines over small embedded clusters, for the tests of this folder."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from extender.embedded import ClusterSpec, EmbeddedCluster, EmbeddedEngine, lay_out
from extender.protocol import Answer, Verb
from extender.rules import Rules
from kube.objects import NodeFacts
from tests.unit.extender.feeds import hold, report
from tests.unit.extender.pods import GPU, args, binding, pod
from topology.model import encode_topology
from topology.value import DEFAULT_DEMAND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extender.embedded.spec import EmbeddedNode
    from extender.state import LiveCluster

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


def engine(*groups: dict[str, Any], **rules: Any) -> EmbeddedEngine:
    """An engine over them."""
    cluster = EmbeddedCluster(lay_out(spec(*groups)), demand=DEFAULT_DEMAND)
    return EmbeddedEngine(cluster, replace(RULES, **rules))


def answer_of(engine: EmbeddedEngine, verb: Verb, body: bytes, now_s: float = 0.0) -> Any:
    """The JSON of an answer."""
    return json.loads(engine.answer(verb, body, now_s).body)


def names(engine: EmbeddedEngine) -> list[str]:
    """All nodes."""
    return list(engine.cluster.snapshot.nodes)


def bind(engine: EmbeddedEngine, uid: str, node: str, n_gpus: int, **annotations: str) -> Answer:
    """Filter and bind one pod."""
    content = pod(n_gpus, uid=uid, **annotations)
    engine.answer(Verb.FILTER, args(content, [node]), 0.0)
    return engine.answer(Verb.BIND, binding(uid, node), 0.0)


def report_devices(
    cluster: EmbeddedCluster,
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
    cluster.see_node(
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
