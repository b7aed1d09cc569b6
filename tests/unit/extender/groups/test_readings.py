"""What others may know of the groups: how they stand, and what became of them."""

from __future__ import annotations

from typing import Any

import pytest

from extender.engine.events import PodDeleted
from extender.protocol import Reason
from tests.unit.extender.group_scene import GroupScene, all_bound

KEY = "default", "g"


@pytest.fixture
def scene() -> GroupScene:
    """Nothing placed yet."""
    return GroupScene()


def test_a_group_that_waits_stands_as_it_is(scene):
    """Who is there and since when, what is missing and why."""
    scene.see("b", "a", size=3)
    scene.filter("a", size=3)
    group = scene.groups.readings.status(KEY)
    assert [one.uid for one in group.members] == ["a", "b"]
    assert {one.since_s for one in group.members} == {100.0}
    assert (group.size, group.n_here, group.n_missing, group.n_claimed) == (3, 2, 1, 0)
    assert (group.title, group.reason, group.complete_s) == (
        "default/g",
        Reason.GROUP_WAITING,
        None,
    )
    assert list(scene.groups.readings.statuses()) == [group]


def test_a_group_without_room_says_since_when_and_how_much_there_is(scene):
    """The time is that of the last member, not of the last plan."""
    uids = [f"u{i}" for i in range(5)]
    scene.see(*uids, size=5)
    for uid in uids:
        scene.filter(uid, size=5)
    scene.woken()
    scene.pass_s(10.0)
    scene.woken()
    group = scene.groups.readings.status(KEY)
    assert (group.reason, group.complete_s, group.n_missing) == (Reason.GROUP_NEVER, 100.0, 0)
    assert group.detail == "never: the cluster has room for 4 of 5 members when empty"
    assert (group.level, group.domain, group.value) == ("", "", None)


def test_what_is_claimed_stands_with_its_domain(scene):
    """And is reported as placed once every member is bound."""
    scene.see("a", "b")
    for uid in ("a", "b"):
        scene.filter(uid)
    scene.woken()
    group = scene.groups.readings.status(KEY)
    assert (group.n_claimed, group.level, group.domain) == (2, "leaf", "S0")
    nodes = [str(scene.node_of(uid)) for uid in ("a", "b")]
    first, second = (scene.begin(uid, on) for uid, on in zip(("a", "b"), nodes, strict=True))
    assert scene.groups.readings.n_held == 0
    assert scene.groups.readings.take_outcomes() == ()
    assert all_bound([scene.end(first), scene.end(second)])
    (outcome,) = scene.groups.readings.take_outcomes()
    assert (outcome.key, outcome.name, outcome.is_whole) == (KEY, "pod-a", True)
    assert outcome.nodes == {"a": nodes[0], "b": nodes[1]}
    assert (outcome.level, outcome.domain, outcome.complete_s) == ("leaf", "S0", 100.0)
    assert scene.groups.readings.take_outcomes() == ()
    bound = scene.groups.readings.status(KEY)
    assert (bound.size, bound.n_here, bound.members) == (None, 2, ())
    assert dict(bound.bound) == outcome.nodes


def written(scene: GroupScene) -> list[Any]:
    """Two members whose Bindings are written, and not answered yet."""
    scene.see("a", "b")
    for uid in ("a", "b"):
        scene.filter(uid)
    scene.woken()
    steps = [scene.begin(uid, str(scene.node_of(uid))) for uid in ("a", "b")]
    return [scene.proceed(step) for step in steps]


def test_members_that_left_the_pending_ones_first_are_waited_for(scene):
    """The watch of pods with a node is behind that of pending pods, and so is the call's answer."""
    writes = written(scene)
    scene.lose("a", "b")
    assert scene.groups.readings.take_outcomes() == ()
    scene.end(writes[0])
    assert scene.groups.readings.take_outcomes() == ()
    scene.end(writes[1])
    (outcome,) = scene.groups.readings.take_outcomes()
    assert outcome.is_whole


def test_a_member_that_is_deleted_before_its_binding_leaves_a_group_partial(scene):
    """Known as soon as its Binding is refused; the group that replaces it is whole by itself."""
    first, second = written(scene)
    scene.lose("b")
    scene.end(first)
    scene.pass_s(12.0)
    assert scene.groups.readings.take_outcomes() == ()
    scene.end(second, is_accepted=False)
    (outcome,) = scene.groups.readings.take_outcomes()
    assert (outcome.n_bound, len(outcome.nodes)) == (1, 2)
    scene.see("c")
    scene.filter("c")
    scene.woken()
    scene.end(scene.begin("c", str(scene.node_of("c"))))
    (outcome,) = scene.groups.readings.take_outcomes()
    assert (outcome.name, outcome.is_whole) == ("pod-c", True)


def test_a_bind_that_is_held_is_counted(scene):
    """Until the others' calls are there."""
    scene.see("a", "b")
    for uid in ("a", "b"):
        scene.filter(uid)
    scene.woken()
    scene.begin("a", str(scene.node_of("a")))
    assert scene.groups.readings.n_held == 1


def test_a_group_of_which_a_binding_is_refused_is_partial(scene):
    """Once, when the last Binding has its end."""
    answers = scene.place("a", "b", refused=("b",))
    assert not all_bound(answers)
    (outcome,) = scene.groups.readings.take_outcomes()
    assert (outcome.n_bound, len(outcome.nodes), outcome.is_whole) == (1, 2, False)


def test_a_member_that_cannot_follow_its_plan_is_counted(scene):
    """kube-scheduler does not offer it the node any more."""
    scene.see("a", "b")
    for uid in ("a", "b"):
        scene.filter(uid)
    scene.woken()
    on = scene.node_of("a")
    scene.filter("a", *(name for name in scene.names if name != on))
    assert scene.groups.readings.n_replans == 1


def test_beside_a_scheduler_that_does_not_lead_nothing_is_told(scene):
    """Filter is not called there, for any pod; before the first call too."""
    readings = scene.groups.readings
    assert not readings.is_placing(scene.now_s)
    scene.filter("single", group="alone", size=None)
    assert readings.is_placing(scene.now_s)
    assert readings.is_placing(scene.now_s + 599.0)
    assert not readings.is_placing(scene.now_s + 600.0)


def test_a_group_of_which_nothing_is_known_stands_empty(scene):
    """After the last of its members has ended."""
    assert all_bound(scene.place("a", "b"))
    for uid in ("a", "b"):
        scene.gateway.handle(PodDeleted(uid))
    group = scene.groups.readings.status(KEY)
    assert (group.n_here, group.n_missing, group.reason) == (0, 0, None)
