"""Groups without a size: nobody waits, and each goes near those that are bound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.bind import WriteBinding
from extender.decision_log.replay import replay
from extender.engine.events import PodDeleted, PodUpdated
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import facts, ids, plan_of
from tests.unit.extender.group_scene import GroupScene, leaf
from topology.annotations import PlanGroup, decode_plan
from topology.model import names

ALL = {f"n{i}" for i in range(4)}


@pytest.fixture
def scene() -> GroupScene:
    """Nothing placed yet."""
    return GroupScene()


def named(scene: GroupScene, uid: str, n_gpus: int = 2, **more: Any) -> set[str]:
    """The nodes that filter names to a member."""
    answer = scene.filter(uid, size=None, n_gpus=n_gpus, **more)
    return set(json.loads(answer.body)["NodeNames"])


def bind(scene: GroupScene, uid: str, on: str, n_gpus: int = 2, **more: Any) -> PlanGroup | None:
    """Filter, bind; the group of the plan."""
    scene.filter(uid, on, size=None, n_gpus=n_gpus, **more)
    step = scene.begin(uid, on)
    assert isinstance(step, WriteBinding)
    assert scene.end(step).outcome is Outcome.OK
    return decode_plan(step.annotations[names.PLAN]).group


def test_the_first_member_goes_anywhere(scene):
    """It waits for no other, and its plan names the group."""
    assert named(scene, "a") == ALL
    assert bind(scene, "a", "n1") == PlanGroup("g", ("leaf", "S0"))
    assert replay(scene.lines).difference is None


def test_others_go_to_the_nearest_domain_with_a_feasible_node(scene):
    """The bound member's node, then its leaf, then any."""
    bind(scene, "a", "n1")
    assert named(scene, "b") == {"n1"}
    assert named(scene, "b", 4) == {"n0"}
    scene.gateway.handle(PodUpdated(facts("x", plan_of("n0", *ids("n0")))))
    assert named(scene, "b", 4) == {"n2", "n3"}
    assert named(scene, "other", 4, group="h") == {"n2", "n3"}


def test_the_domain_in_a_plan_is_that_of_all_members(scene):
    """Empty where they share none."""
    bind(scene, "a", "n1")
    assert bind(scene, "b", "n0") == PlanGroup("g", ("leaf", "S0"))
    assert bind(scene, "c", "n3") == PlanGroup("g", ())


def test_members_that_ended_attract_nobody(scene):
    """Where they were is no place of the group any more."""
    bind(scene, "a", "n1")
    scene.gateway.handle(PodDeleted("a"))
    assert named(scene, "b") == ALL


def test_a_refusal_names_every_node(scene):
    """Each with its own reason, as for a pod without a group."""
    bind(scene, "a", "n1")
    answer = scene.filter("b", size=None, n_gpus=5)
    assert answer.reason is Reason.TOO_FEW_GPUS
    assert set(json.loads(answer.body)["FailedAndUnresolvableNodes"]) == ALL


def test_nodes_that_are_not_offered_are_not_named(scene):
    """kube-scheduler left them out."""
    bind(scene, "a", "n1")
    answer = scene.filter("b", "n0", "n3", size=None, n_gpus=2)
    assert json.loads(answer.body)["NodeNames"] == ["n0"]


def test_a_required_domain_is_never_left(scene):
    """With members there, theirs; without, any domain of that level."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 2}") for i in range(4)), leaf("n4", "", domains={}))
    wish: dict[str, Any] = {"group_domain": "leaf", "group_policy": "required"}
    assert named(scene, "a", **wish) == ALL
    bind(scene, "a", "n1", **wish)
    assert named(scene, "b", 4, **wish) == {"n0"}
    scene.gateway.handle(PodUpdated(facts("x", plan_of("n0", *ids("n0")))))
    answer = scene.filter("b", size=None, n_gpus=4, **wish)
    assert answer.reason is Reason.GROUP_NO_ROOM
    assert set(json.loads(answer.body)["FailedAndUnresolvableNodes"]) == {*ALL, "n4"}
    none = scene.filter("c", size=None, group="h", **(wish | {"group_domain": "rack"}))
    assert none.reason is Reason.GROUP_NO_ROOM
