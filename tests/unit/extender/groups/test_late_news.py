"""Watches and calls that come late: nothing follows from what is over."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.bind import HoldBind, WriteBinding, WriteResult, Written
from extender.decision_log.replay import replay
from extender.engine.events import (
    BindAbandoned,
    BindHeld,
    BindingWritten,
    BindPodRead,
    PendingUpdated,
    PodDeleted,
    PodFetched,
    PodsListed,
    PodUpdated,
)
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import bare, facts, whole
from tests.unit.extender.group_scene import LEAF, GroupScene, all_bound, claim_all, leaf, n_free
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
    assert "a" not in scene.groups.waiting_uids
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
    assert "a" in scene.groups.waiting_uids


def test_a_bound_member_that_the_watch_of_pending_pods_still_shows_does_not_wait(scene):
    """The status patch of its last attempt, delivered after the Binding's answer."""
    assert all_bound(scene.place("a", "b"))
    scene.gateway.handle(PendingUpdated(scene.pending("a"), scene.now_s))
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
    scene.gateway.handle(PodDeleted("a"))
    assert scene.groups.readings.counts(KEY)[:2] == (2, 1)
    scene.gateway.handle(PodDeleted("b"))
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
        scene.gateway.handle(PodDeleted(uid))
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
        scene.gateway.handle(PodUpdated(shown))
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


@pytest.mark.parametrize("is_answered", [True, False], ids=["a late answer", "no answer"])
def test_a_member_that_ended_before_its_bind_did_is_not_bound(scene, is_answered):
    """Else the group has begun for ever, and a later one starts with any of its pods."""
    nodes = claim_all(scene, *"abcd", size=4)
    calls = {uid: scene.begin(uid, nodes[uid]) for uid in "abcd"}
    steps = {uid: scene.proceed(step) for uid, step in calls.items()}
    for uid in "bcd":
        assert scene.end(steps[uid]).outcome is Outcome.OK
    plan = steps["a"].annotations["coterie.gpu/plan"]
    scene.lose(*"abcd")
    scene.gateway.handle(PodUpdated(facts("a", decode_plan(plan))))
    for uid in "bcd":
        scene.gateway.handle(PodUpdated(bound_pod(scene, uid)))
    scene.gateway.handle(PodDeleted("a"))
    if is_answered:
        answer = scene.end(steps["a"])
    else:
        unknown = Written(WriteResult.UNKNOWN, "504")
        reading = scene.gateway.handle(BindingWritten(steps["a"], unknown, scene.now_s))
        body = scene.manifest("a", size=4)
        body["metadata"]["annotations"]["coterie.gpu/plan"] = plan
        body["spec"]["nodeName"] = nodes["a"]
        body["status"]["phase"] = "Failed"
        answer = scene.gateway.handle(BindPodRead(reading, json.dumps(body).encode(), scene.now_s))
    assert answer.outcome is Outcome.OK
    assert set(scene.groups.readings.status(KEY).bound) == set("bcd")
    for uid in "bcd":
        scene.gateway.handle(PodDeleted(uid))
    scene.see("e", size=4)
    scene.filter("e", size=4)
    scene.woken()
    assert scene.filter("e", size=4).reason is Reason.GROUP_WAITING
    assert replay(scene.lines).difference is None


def counted(scene: GroupScene, *uids: str, **changes: Any) -> None:
    """The watch shows bound members without a plan, and each is read in full."""
    scene.gateway.handle(PodsListed(tuple(facts(uid) for uid in uids)))
    for uid in uids:
        read = whole(uid, f"n{uid}", body=scene.manifest(uid, size=4))
        scene.gateway.handle(PodFetched(replace(read, **changes)))


@pytest.fixture
def next_process() -> GroupScene:
    """An extender that has just started, over nodes of which devices are counted."""
    return GroupScene(*(bare(f"n{uid}", domains={LEAF: "S"}) for uid in "abcdef"))


def test_members_whose_devices_are_counted_are_known_to_the_next_process(next_process):
    """They have no plan that names their group: the others would wait for them for ever."""
    counted(next_process, "a", "b")
    assert set(next_process.status().bound) == {"a", "b"}
    assert all_bound(next_process.place("c", "d", size=4))
    for uid in "abcd":
        next_process.gateway.handle(PodDeleted(uid))
    assert not next_process.groups.near_bound.bound.has_begun(KEY)
    assert replay(next_process.lines).difference is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"is_deleting": True}, id="it is leaving"),
        pytest.param({"phase": "Failed"}, id="it has ended"),
        pytest.param({"node_name": None}, id="it has no node after all"),
        pytest.param({"body": b"{}"}, id="it cannot be read"),
    ],
)
def test_a_pod_that_was_read_in_full_is_not_always_a_member(next_process, changes):
    """Nothing waits less for such a pod."""
    counted(next_process, "a", **changes)
    assert not next_process.groups.near_bound.bound.has_begun(KEY)


def test_a_member_that_another_scheduler_placed_is_none():
    """As one that is pending and another scheduler's is not waited for."""
    scene = GroupScene(bare("na"), scheduler_names=("another",))
    counted(scene, "a")
    assert not scene.groups.near_bound.bound.has_begun(KEY)


def test_a_member_whose_labels_are_edited_leaves_its_group(next_process):
    """Its end would end it in the last group alone."""
    counted(next_process, "a")
    next_process.see("c", size=4)
    body = next_process.manifest("a", group="another", size=4)
    next_process.gateway.handle(PodFetched(whole("a", "na", body=body)))
    bound = next_process.groups.near_bound.bound
    assert (bound.count(KEY), bound.count(("default", "another"))) == (0, 1)
    assert next_process.status().n_here == 1
    next_process.gateway.handle(PodDeleted("a"))
    assert not bound.has_begun(("default", "another"))
