"""Engines over small embedded clusters, for the tests of this folder."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from extender.embedded import ClusterSpec, EmbeddedCluster, EmbeddedEngine, lay_out
from extender.protocol import Answer, Verb
from extender.rules import Rules
from tests.unit.extender.pods import GPU, args, binding, pod
from topology.value import DEFAULT_DEMAND

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


def ask(engine: EmbeddedEngine, verb: Verb, body: bytes, now_s: float = 0.0) -> Any:
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
