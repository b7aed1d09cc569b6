"""Pods without a group get the very answers that they get where no group waits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from extender.engine.events import PodDeleted, PodUpdated, VerbCalled
from extender.protocol import Verb
from tests.unit.extender.feeds import facts, ids, plan_of
from tests.unit.extender.group_scene import GroupScene, claim_all
from tests.unit.extender.pods import args, pod

if TYPE_CHECKING:
    from collections.abc import Callable


def incomplete(scene: GroupScene) -> None:
    """Two of three members."""
    scene.see("m1", "m2", size=3)
    for uid in ("m1", "m2"):
        scene.filter(uid, size=3)


def without_room(scene: GroupScene) -> None:
    """All members, and more than there are nodes."""
    uids = [f"m{i}" for i in range(5)]
    scene.see(*uids, size=5)
    for uid in uids:
        scene.filter(uid, size=5)


def let_go(scene: GroupScene) -> None:
    """Claims that ended."""
    claim_all(scene, "m1", "m2")
    scene.lose("m1", "m2")


def answers(scene: GroupScene) -> list[bytes]:
    """What a run of single pods gets; generations are of the state and may differ."""
    found: list[bytes] = []
    scene.gateway.handle(PodUpdated(facts("x", plan_of("n1", *ids("n1", 0, 2)))))
    for uid, n_gpus, wishes in (
        ("a", 1, {}),
        ("b", 2, {"affinity": "nvlink"}),
        ("c", 4, {"affinity": "nvlink", "policy": "required"}),
        ("d", 3, {}),
        ("e", 5, {}),
    ):
        made = pod(n_gpus, uid=uid, **wishes)
        answer = scene.call(made)
        found.append(answer.body)
        body = args(made, scene.names)
        found.append(scene.gateway.handle(VerbCalled(Verb.PRIORITIZE, body, scene.now_s)).body)
        named = json.loads(answer.body)["NodeNames"]
        if named:
            ended = scene.end(scene.begin(uid, named[0]))
            found.append(ended.body)
        scene.woken()
    scene.gateway.handle(PodDeleted("x"))
    found.append(scene.call(pod(4, uid="f")).body)
    return found


@pytest.mark.parametrize("wait", [incomplete, without_room, let_go])
def test_answers_are_the_same_byte_for_byte(wait: Callable[[GroupScene], None]):
    """Which nodes, which scores, which reasons."""
    beside = GroupScene()
    wait(beside)
    alone = GroupScene()
    assert answers(beside) == answers(alone)


def test_claims_count_as_taken():
    """As devices of a binding in flight."""
    scene = GroupScene()
    nodes = claim_all(scene, "m1", "m2")
    answer = scene.call(pod(4, uid="a"))
    assert set(json.loads(answer.body)["NodeNames"]) == set(scene.names) - set(nodes.values())
