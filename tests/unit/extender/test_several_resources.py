"""Every verb on nodes that serve whole GPUs and MIG profiles, and the log of it replayed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from extender.bind import BindCall, WriteBinding, WriteResult, Written
from extender.decision_log import DecisionLog
from extender.decision_log.replay import replay
from extender.engine import Engine, Gateway
from extender.engine.events import (
    BindingWritten,
    BindRequested,
    FreshnessSet,
    NodesListed,
    NominationsListed,
    PodDeleted,
    PodFetched,
    PodsListed,
    PodUpdated,
    PreemptRequested,
    RequeueDue,
    VerbCalled,
)
from extender.protocol import Answer, Outcome, Reason, Verb
from extender.state import LiveCluster
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import MIG, content, facts, node, whole
from tests.unit.extender.pods import GPU, args, binding

NODES = ["mixed-a", "mixed-b", "plain"]
COUNTS = {GPU: 4, MIG: 3}


class Scene:
    """Two nodes with both resources, one with GPUs alone, and the log of what happens there."""

    def __init__(self) -> None:
        rules = replace(RULES, resources=(GPU, MIG))
        engine = Engine(LiveCluster(rules.resources, demand=rules.demand), rules)
        self.file = io.StringIO()
        self.gateway = Gateway(engine, record=DecisionLog(self.file, rules, _fail).record)
        mixed = (node(one, allocatable=COUNTS, capacity=COUNTS) for one in NODES[:2])
        self.gateway.handle(NodesListed((*mixed, node("plain"))))
        self.gateway.handle(PodsListed(()))
        self.gateway.handle(NominationsListed(()))
        self.gateway.handle(FreshnessSet(is_synced=True, observed_at_s=0.0))

    def call(self, verb: Verb, uid: str, count: int, resource: str, **wishes: str) -> Answer:
        """A call about all nodes."""
        body = args(content(uid, count, resource=resource, **wishes), NODES)
        return self.gateway.handle(VerbCalled(verb, body, 1.0))

    def named(self, uid: str, count: int, resource: str) -> list[str]:
        """The nodes that filter names."""
        named: list[str] = json.loads(self.call(Verb.FILTER, uid, count, resource).body)[
            "NodeNames"
        ]
        return named

    def bind(self, uid: str, count: int, resource: str, on: str) -> WriteBinding:
        """Filter and bind with success; what was written."""
        self.call(Verb.FILTER, uid, count, resource)
        step = self.gateway.handle(BindRequested(BindCall.decode(binding(uid, on)), 1.0))
        assert isinstance(step, WriteBinding), step
        answer = self.gateway.handle(BindingWritten(step, Written(WriteResult.ACCEPTED), 1.0))
        assert isinstance(answer, Answer)
        assert answer.outcome is Outcome.OK
        return step


def _fail(error: Exception) -> None:
    raise error


@pytest.fixture
def scene():
    """Nothing placed yet; afterwards the log is replayed."""
    scene = Scene()
    yield scene
    assert replay(scene.file.getvalue().splitlines(keepends=True)).difference is None


def test_filter_and_prioritize_answer_for_the_requested_resource(scene):
    """Partitions are on two nodes, whole GPUs on three."""
    assert scene.named("g", 4, GPU) == NODES
    assert scene.named("m", 3, MIG) == NODES[:2]
    scores = json.loads(scene.call(Verb.PRIORITIZE, "g", 2, GPU).body)
    assert all(one["Score"] > 0 for one in scores)
    assert scene.named("m", 4, MIG) == []


def test_pods_of_both_resources_are_bound_beside_each_other(scene):
    """Whole GPUs with a plan, partitions by count; neither takes what the other has."""
    assert scene.bind("g", 4, GPU, "mixed-a").annotations
    assert scene.bind("m", 2, MIG, "mixed-a").annotations == {}
    assert scene.named("g2", 1, GPU) == ["mixed-b", "plain"]
    assert scene.named("m2", 1, MIG) == ["mixed-a", "mixed-b"]
    assert scene.named("m3", 2, MIG) == ["mixed-b"]
    scene.gateway.handle(PodUpdated(facts("m")))
    body = content("m", 2, resource=MIG)
    scene.gateway.handle(PodFetched(whole("m", "mixed-a", body=body)))
    assert scene.named("m3", 2, MIG) == ["mixed-b"]
    scene.gateway.handle(PodDeleted("m"))
    assert scene.named("m3", 2, MIG) == ["mixed-a", "mixed-b"]


def test_a_pod_of_partitions_is_woken_when_some_come_free(scene):
    """And no pod that waits for whole GPUs."""
    for i, on in enumerate(NODES[:2]):
        scene.bind(f"m{i}", 3, MIG, on)
    for i, on in enumerate(NODES):
        scene.bind(f"g{i}", 4, GPU, on)
    assert scene.named("waits", 1, MIG) == scene.named("stays", 1, GPU) == []
    scene.gateway.handle(RequeueDue(1.5))
    scene.gateway.handle(PodDeleted("m1"))
    woken = [scene.gateway.handle(RequeueDue(now_s)) for now_s in (2.0, 3.0)]
    assert [one.uid for found in woken for one in found] == ["waits"]


def test_preemption_weighs_the_pods_that_hold_the_resource(scene):
    """Victims that hold whole GPUs give no partition back: the scheduler's own choice stands."""
    scene.bind("g", 4, GPU, "mixed-a")
    scene.bind("m", 3, MIG, "mixed-a")
    for count, resource, victim, expected in (
        (3, MIG, "m", {"mixed-a"}),
        (4, GPU, "g", {"mixed-a"}),
        (4, MIG, "m", set()),
    ):
        body: dict[str, Any] = {
            "Pod": content("pre", count, resource=resource) | {"status": {}},
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": {
                "mixed-a": {"Pods": [{"UID": victim}], "NumPDBViolations": 0}
            },
        }
        body["Pod"]["spec"]["priority"] = 9
        answer = scene.gateway.handle(PreemptRequested(json.dumps(body).encode(), 3.0))
        assert isinstance(answer, Answer)
        assert set(json.loads(answer.body)["NodeNameToMetaVictims"]) == expected


def test_explain_shows_the_requested_resource(scene):
    """For a pod that waits, and for one that has a node."""
    scene.bind("m", 2, MIG, "mixed-a")
    explained = json.loads(scene.call(Verb.EXPLAIN, "waits", 2, MIG).body)
    shown = {one["node"]: one for one in explained["nodes"]}
    assert (shown["mixed-a"]["free_gpus"], shown["mixed-b"]["fits"]) == (1, True)
    assert shown["plain"]["reason_label"] == Reason.OTHER_RESOURCE.label
    bound = content("m", 2, resource=MIG)
    bound["spec"]["nodeName"] = "mixed-a"
    body = json.dumps(bound).encode()
    explained = json.loads(scene.gateway.handle(VerbCalled(Verb.EXPLAIN, body, 1.0)).body)
    assert [one["state"] for one in explained["bound"]["devices"]] == ["bound", "bound"]
    assert explained["bound"]["could_have"]["fits"]
