"""Bind calls of members: held until all are there, and what becomes of those that fail."""

from __future__ import annotations

import pytest

from extender.bind import HoldBind, WriteBinding, WriteResult, Written
from extender.engine.events import (
    BindAbandoned,
    BindHeld,
    BindingWritten,
    NodeUpdated,
    PodUpdated,
)
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import facts, ids, report
from tests.unit.extender.group_scene import GroupScene, all_bound, claim_all, leaf
from topology.model import names

KEY = ("default", "g")


@pytest.fixture
def scene() -> GroupScene:
    """Nothing placed yet."""
    return GroupScene()


def test_with_a_member_to_spare_the_others_go_on(scene):
    """The size is a minimum: a member that is gone keeps nobody."""
    nodes = claim_all(scene, "a", "b", "c", n_gpus=2)
    held = scene.begin("a", nodes["a"])
    scene.lose("c")
    assert isinstance(held, HoldBind)
    other = scene.begin("b", nodes["b"])
    assert isinstance(other, WriteBinding)
    assert all_bound([scene.end(held), scene.end(other)])


def test_members_beyond_the_size_do_not_hold_the_others(scene):
    """They are bound when they come."""
    nodes = claim_all(scene, "a", "b", "c", n_gpus=2)
    first = scene.begin("a", nodes["a"])
    second = scene.begin("b", nodes["b"])
    assert all_bound([scene.end(second), scene.end(first)])
    assert all_bound([scene.end(scene.begin("c", nodes["c"]))])
    assert scene.groups.readings.counts(KEY) == (0, 3, 0)


def test_devices_that_fail_after_the_claim_are_replaced_before_anything_is_bound(scene):
    """The last bind call would release the group."""
    nodes = claim_all(scene, "a", "b")
    held = scene.begin("a", nodes["a"])
    bad = leaf(nodes["a"], "S0", devices=report(ids(nodes["a"])[0]))
    scene.gateway.handle(NodeUpdated(bad))
    last = scene.begin("b", nodes["b"])
    assert isinstance(last, HoldBind)
    assert scene.end(held).reason is Reason.GROUP_INCOMPLETE
    assert scene.groups.releases.is_held("b")
    assert scene.woken() == ["a"]
    again = scene.begin("a", str(scene.node_of("a")))
    assert all_bound([scene.end(again), scene.end(last)])


def test_a_bind_call_for_another_node_than_the_claimed_one_fails(scene):
    """Its devices are elsewhere."""
    nodes = claim_all(scene, "a", "b")
    other = next(name for name in scene.names if name not in nodes.values())
    answer = scene.begin("a", other)
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.GROUP_NOT_PLANNED)
    assert f"they are on node {nodes['a']}" in answer.detail
    scene.see("x", group="h")
    assert scene.begin("x", other).reason is Reason.GROUP_NOT_PLANNED


def test_a_second_bind_call_while_the_first_is_held_fails(scene):
    """One call of a pod at a time."""
    nodes = claim_all(scene, "a", "b")
    held = scene.begin("a", nodes["a"])
    assert scene.begin("a", nodes["a"]).reason is Reason.UNDER_WAY
    assert scene.groups.releases.is_held("a")
    first = scene.end(held)
    assert first.reason is Reason.GROUP_INCOMPLETE
    late = scene.gateway.handle(BindHeld(held, scene.now_s))
    assert late.reason is Reason.UNDER_WAY


def test_a_hold_that_is_abandoned_leaves_the_member_claimed(scene):
    """A shutdown; the next call is held again."""
    nodes = claim_all(scene, "a", "b")
    held = scene.begin("a", nodes["a"])
    answer = scene.gateway.handle(BindAbandoned(held, "interrupted", scene.now_s))
    assert answer.reason is Reason.GROUP_INCOMPLETE
    assert isinstance(scene.begin("a", nodes["a"]), HoldBind)


def test_a_refused_binding_makes_the_member_missing_and_it_is_placed_near_the_others(scene):
    """The group is partly bound: the rest is not planned as a group of its own."""
    answers = scene.place("a", "b", refused=("b",))
    assert [one.outcome for one in answers] == [Outcome.OK, Outcome.FAILED]
    assert scene.groups.readings.counts(KEY) == (1, 1, 2)
    assert scene.woken() == ["b"]
    on = str(scene.node_of("b"))
    near = scene.where("a")
    assert int(on[1]) // 2 == int(near[1]) // 2
    assert scene.end(scene.begin("b", on)).outcome is Outcome.OK


def test_a_member_whose_binding_may_come_true_is_planned_nowhere_else(scene):
    """Another plan would be counted while the first one is bound."""
    nodes = claim_all(scene, "a", "b")
    steps = {uid: scene.begin(uid, on) for uid, on in nodes.items()}
    write = scene.gateway.handle(BindHeld(steps["a"], scene.now_s))
    lost = Written(WriteResult.UNKNOWN, "timeout")
    read = scene.gateway.handle(BindingWritten(write, lost, scene.now_s))
    answer = scene.gateway.handle(BindAbandoned(read, "out of time", scene.now_s))
    assert answer.outcome is Outcome.FAILED
    others = [name for name in scene.names if name != nodes["a"]]
    assert scene.filter("a", *others).reason is Reason.GROUP_PLACING
    scene.pass_s(61.0)
    scene.pass_s(1.0)
    assert "a" in scene.woken()


def test_the_watches_may_show_a_bound_member_in_any_order(scene):
    """It stops being pending before its bind is answered, or its plan is shown."""
    nodes = claim_all(scene, "a", "b")
    steps = {uid: scene.begin(uid, on) for uid, on in nodes.items()}
    write = scene.gateway.handle(BindHeld(steps["a"], scene.now_s))
    scene.lose("a")
    accepted = Written(WriteResult.ACCEPTED)
    scene.gateway.handle(BindingWritten(write, accepted, scene.now_s))
    assert scene.groups.readings.counts(KEY) == (1, 1, 2)
    text = write.annotations[names.PLAN]
    scene.gateway.handle(PodUpdated(facts("a", text)))
    assert scene.end(steps["b"]).outcome is Outcome.OK
    assert scene.groups.readings.counts(KEY) == (0, 2, 0)
