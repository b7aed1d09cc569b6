"""Requeues over a live cluster: which pods may have freed GPUs, and on which nodes."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine import Engine, Gateway
from extender.engine.events import (
    FreshnessSet,
    NodeUpdated,
    NominationUpdated,
    PodDeleted,
    PodUpdated,
    RequeueDue,
    VerbCalled,
)
from extender.protocol import Outcome, Verb
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import content, facts, ids, live, node, plan_of, whole
from tests.unit.extender.pods import args

FULL = {name: plan_of(name, *ids(name)) for name in ("n1", "n2")}


class Scene:
    """Two full nodes of four GPUs, at 100 s."""

    def __init__(self) -> None:
        cluster = live(*map(node, FULL))
        self.gateway = Gateway(Engine(cluster, RULES))
        for name, plan in FULL.items():
            self.gateway.handle(PodUpdated(facts(f"on-{name}", plan)))
        self.requeued(100.0)

    def reject(self, uid: str, now_s: float, *requested: str, priority: int = 0) -> None:
        """A pod of four GPUs finds no node."""
        pending = content(uid, 4)
        pending["spec"]["priority"] = priority
        answer = self.gateway.handle(
            VerbCalled(Verb.FILTER, args(pending, list(requested or FULL)), now_s)
        )
        assert answer.outcome is Outcome.REFUSED

    def nominate(self, uid: str, on: str, priority: int) -> None:
        """A pod of four GPUs waits for a node."""
        body = content(uid, 4)
        body["spec"]["priority"] = priority
        waiting: dict[str, Any] = {"nominated_node": on, "priority": priority, "phase": "Pending"}
        self.gateway.handle(NominationUpdated(whole(uid, None, 4, body=body, **waiting)))

    def requeued(self, now_s: float) -> list[str]:
        """Who is requeued; the watches are fresh."""
        self.gateway.handle(FreshnessSet(is_synced=True, observed_at_s=now_s))
        return [requeue.uid for requeue in self.gateway.handle(RequeueDue(now_s))]

    def requeued_after(self, now_s: float) -> list[str]:
        """Who is requeued once the scheduler has had its time."""
        return self.requeued(now_s) + self.requeued(now_s + RULES.wake_after_s)


@pytest.fixture
def scene() -> Scene:
    """No pod is pending yet."""
    return Scene()


def test_a_preemptor_that_was_rejected_too_early_is_requeued_for_what_it_claims(scene):
    """The scheduler saw its victim go before our watch did; no other pod may have the GPUs."""
    scene.nominate("pre", "n1", 100)
    scene.reject("pre", 101.0, priority=100)
    scene.reject("other", 101.0, priority=100)
    scene.gateway.handle(PodDeleted("on-n1"))
    assert scene.requeued_after(102.0) == ["pre"]


def test_a_pod_is_requeued_for_what_a_pod_of_lower_priority_claims(scene):
    """Its next filter call counts that as free."""
    scene.nominate("low", "n1", 1)
    scene.reject("high", 101.0, priority=100)
    scene.reject("equal", 101.0, priority=1)
    scene.gateway.handle(PodDeleted("on-n1"))
    assert scene.requeued_after(102.0) == ["high"]


def test_changes_of_another_pool_do_not_count_as_requeues(scene):
    """It would be requeued uselessly again and again, and then be left alone for minutes."""
    now_s = 101.0
    scene.reject("p", now_s, "n1")
    scene.gateway.handle(PodDeleted("on-n2"))
    for i in range(20):
        assert scene.requeued_after(now_s + 1) == []
        now_s += 30
        scene.gateway.handle(PodUpdated(facts(f"next-{i}", FULL["n2"])))
        scene.gateway.handle(PodDeleted(f"next-{i}"))
    scene.gateway.handle(PodDeleted("on-n1"))
    assert scene.requeued_after(now_s) == ["p"]


def test_a_new_node_is_considered_though_no_filter_call_named_it(scene):
    """It was not there."""
    scene.reject("p", 101.0, "n1")
    scene.gateway.handle(NodeUpdated(node("n3")))
    assert scene.requeued_after(102.0) == ["p"]
