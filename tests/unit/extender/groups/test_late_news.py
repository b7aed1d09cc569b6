"""Watches and calls that come late: nothing follows from what is over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from extender.bind import HoldBind, WriteBinding
from extender.decision_log.replay import replay
from extender.engine.events import (
    BindAbandoned,
    BindHeld,
    PendingSeen,
    PodFetched,
    PodGone,
    PodSeen,
)
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import facts, whole
from tests.unit.extender.group_scene import GroupScene, all_bound, claim_all, leaf, n_free
from topology.annotations import decode_plan

if TYPE_CHECKING:
    from kube.objects import PodFacts

KEY = ("default", "g")


@pytest.fixture
def scene() -> GroupScene:
    """Eight nodes, nothing placed yet."""
    return GroupScene(*(leaf(f"n{i}", f"S{i // 2}") for i in range(8)))


def bound_pod(scene: GroupScene, uid: str) -> PodFacts:
    """A bound pod as the watch of assigned pods shows it."""
    bound = scene.gateway.cluster.pods.bound(uid)
    assert bound is not None
    return facts(uid, decode_plan(str(bound.plan_text)))


def test_a_filter_call_after_the_deletion_makes_no_member(scene):
    """kube-scheduler was in the pod's cycle; the next group of that name has another size."""
    scene.see("a", "b")
    scene.filter("a")
    scene.lose("a", "b")
    assert scene.filter("a").reason is Reason.GROUP_WAITING
    assert not scene.groups.has_member("a")
    assert set(claim_all(scene, *"cdef", size=4)) == set("cdef")
    assert scene.filter("c", size=4).outcome is Outcome.OK
    assert replay(scene.lines).difference is None


def test_a_member_that_no_watch_shows_gets_no_claim_and_says_nothing_of_the_group(scene):
    """It was deleted before its first call came; its size differs."""
    scene.filter("ghost", size=3)
    nodes = claim_all(scene, "a", "b")
    assert None not in nodes.values()
    assert scene.groups.claim("ghost") is None
    assert scene.filter("ghost", size=3).outcome is Outcome.REFUSED


def test_a_pod_that_is_seen_again_is_a_member_after_all(scene):
    """A list was older than the watch before it."""
    scene.see("a", "b")
    scene.lose("a")
    scene.see("a")
    for uid in ("a", "b"):
        scene.filter(uid)
    assert set(scene.woken()) == {"a", "b"}


def test_who_left_is_remembered_for_some_seconds(scene):
    """A uid never comes again: what is kept of it is bounded."""
    scene.see("a", "b")
    scene.lose("a")
    for _ in range(3):
        scene.pass_s(5.0)
    scene.filter("a")
    assert scene.groups.has_member("a")


def test_a_bound_member_that_the_watch_of_pending_pods_still_shows_does_not_wait(scene):
    """The status patch of its last attempt, delivered after the Binding's answer."""
    assert all_bound(scene.place("a", "b"))
    scene.gateway.handle(PendingSeen(scene.pending("a"), scene.now_s))
    assert scene.groups.readings.counts(KEY) == (0, 2, 0)
    assert scene.groups.n_groups == 0
    scene.filter("a")
    assert scene.groups.n_groups == 0


def test_a_member_beyond_the_size_that_is_deleted_does_not_hold_the_others(scene):
    """Their bind calls are there, and no other is needed any more."""
    scene.see("a", "b", "c")
    for uid in "abc":
        scene.filter(uid)
    scene.woken()
    nodes = {uid: str(scene.node_of(uid)) for uid in "abc"}
    steps = [scene.begin(uid, nodes[uid]) for uid in "ab"]
    scene.lose("c")
    assert not scene.groups.releases.is_held("a")
    assert all_bound([scene.end(step) for step in steps if isinstance(step, HoldBind)])


def test_claims_that_end_while_bindings_are_in_flight_are_kept(scene):
    """The API server may apply them yet: no other pod gets the devices."""
    nodes = claim_all(scene, "a", "b")
    scene.pass_s(58.0)
    steps = [scene.begin(uid, nodes[uid]) for uid in "ab"]
    writes = [
        scene.gateway.handle(BindHeld(step, scene.now_s)) if isinstance(step, HoldBind) else step
        for step in steps
    ]
    assert all(isinstance(one, WriteBinding) for one in writes)
    scene.pass_s(3.0)
    assert scene.woken() == []
    assert n_free(scene) == 24
    assert all_bound([scene.end(one) for one in writes])
    assert {uid: scene.where(uid) for uid in "ab"} == nodes


def test_a_member_that_is_deleted_while_its_bind_is_about_to_go_on_keeps_nothing(scene):
    """Its group was released, and its Binding not begun."""
    nodes = claim_all(scene, "a", "b")
    steps = [scene.begin(uid, nodes[uid]) for uid in "ab"]
    scene.lose("a")
    assert scene.end(steps[0]).outcome is Outcome.FAILED
    assert n_free(scene) == 28
    assert scene.end(steps[1]).outcome is Outcome.OK


def test_members_that_ended_are_not_missing(scene):
    """Two of four are bound and have done their work; the others are placed all the same."""
    answers = scene.place(*"abcd", refused=("c", "d"))
    assert [one.outcome for one in answers[:2]] == [Outcome.OK] * 2
    scene.gateway.handle(PodGone("a"))
    assert scene.groups.readings.counts(KEY)[:2] == (2, 1)
    scene.gateway.handle(PodGone("b"))
    for uid in "cd":
        scene.filter(uid, size=4)
    scene.pass_s(1.0)
    assert scene.woken() == ["c", "d"]
    status = scene.groups.readings.status(KEY)
    assert (status.size, status.n_missing) == (2, 0)
    nodes = {uid: str(scene.node_of(uid, size=4)) for uid in "cd"}
    steps = [scene.begin(uid, on) for uid, on in nodes.items()]
    assert all_bound([scene.end(step) for step in steps])
    assert replay(scene.lines).difference is None


def test_a_group_starts_over_once_nobody_of_it_waits_or_is_bound(scene):
    """What ended before is another group's."""
    scene.place(*"abcd", refused=("c", "d"))
    for uid in "ab":
        scene.gateway.handle(PodGone(uid))
    scene.lose("c", "d")
    scene.see("e", "f", size=4)
    for uid in "ef":
        scene.filter(uid, size=4)
    scene.pass_s(1.0)
    assert scene.woken() == []
    assert scene.filter("e", size=4).reason is Reason.GROUP_WAITING


def test_new_members_do_not_join_those_that_are_being_deleted(scene):
    """A job is made again under its name while the pods of the old one still end."""
    assert all_bound(scene.place("a", "b"))
    for uid in "ab":
        shown = replace(bound_pod(scene, uid), deletion_grace_s=30)
        scene.gateway.handle(PodSeen(shown))
    assert scene.groups.readings.counts(KEY) == (0, 0, 0)
    scene.see("c")
    scene.filter("c")
    assert scene.woken() == []
    assert scene.filter("c").reason is Reason.GROUP_WAITING


def test_a_binding_that_was_lost_makes_its_member_no_bound_one(scene):
    """The API server's store was restored: the pod has no node."""
    assert all_bound(scene.place("a", "b"))
    scene.pass_s(90.0)
    scene.gateway.cluster.take_effects()
    scene.gateway.handle(PodFetched(whole("a", None)))
    assert scene.groups.readings.counts(KEY)[1] == 1


@pytest.mark.parametrize(("version", "is_over"), [("9", False), ("10", False), ("11", True)])
def test_a_binding_of_unknown_outcome_is_over_once_the_pod_has_changed_without_a_node(
    scene, version, is_over
):
    """The API server restarted: without it some members would be bound and others never offered."""
    made = {uid: scene.manifest(uid) for uid in "ab"}
    for uid, content in made.items():
        content["metadata"]["resourceVersion"] = "10"
        scene.see(uid)
        scene.call(content)
    scene.woken()
    nodes = {uid: scene.groups.claim(uid).node for uid in made}
    for content in made.values():
        scene.call(content)
    steps = [scene.begin(uid, nodes[uid]) for uid in made]
    for step in steps:
        is_held = isinstance(step, HoldBind)
        write = scene.gateway.handle(BindHeld(step, scene.now_s)) if is_held else step
        scene.gateway.handle(BindAbandoned(write, "no answer", scene.now_s))
    left = [name for name in scene.names if name != nodes["a"]]
    made["a"]["metadata"]["resourceVersion"] = version
    assert scene.call(made["a"], *left).outcome is Outcome.REFUSED
    scene.pass_s(1.0)
    scene.woken()
    assert (scene.groups.claim("a").node != nodes["a"]) is is_over
    assert isinstance(scene.begin("a", scene.groups.claim("a").node), HoldBind)
    assert scene.groups.releases.is_held("a")  # b is not certain either
    scene.begin("b", nodes["b"])
    assert not scene.groups.releases.is_held("a")
    assert replay(scene.lines).difference is None


def test_devices_of_a_binding_of_unknown_outcome_are_kept_as_long_as_it_may_be_made(scene):
    """Whatever becomes of the group meanwhile; then the member waits as any other."""
    nodes = claim_all(scene, "a", "b")
    steps = [scene.begin(uid, nodes[uid]) for uid in "ab"]
    write = scene.gateway.handle(BindHeld(steps[0], scene.now_s))
    scene.gateway.handle(BindAbandoned(write, "no answer", scene.now_s))
    assert scene.end(steps[1], is_accepted=False).outcome is Outcome.FAILED
    again = scene.begin("a", nodes["a"])
    assert scene.groups.releases.is_held("a")
    scene.lose("b")
    assert not scene.groups.releases.is_held("a")
    assert scene.end(again).reason is Reason.GROUP_INCOMPLETE
    assert n_free(scene) == 28
    scene.pass_s(120.0)
    assert n_free(scene) == 32
    assert scene.filter("a").reason is Reason.GROUP_WAITING
    assert replay(scene.lines).difference is None
