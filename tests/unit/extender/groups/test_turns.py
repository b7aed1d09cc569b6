"""Which group is planned when: everyone has a turn, and who has kept devices for nothing waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from extender.bind import HoldBind
from extender.engine.events import PodDeleted, PodUpdated
from extender.groups.members import Group
from extender.groups.reconcile import DelayingQueue, Reconciler
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import facts, ids, plan_of
from tests.unit.extender.group_scene import GroupScene, claim_all, leaf

KEY = ("default", "g")


def single(scene: GroupScene) -> bool:
    """Whether a pod without a group finds a place for four GPUs."""
    made = scene.manifest("single")
    made["metadata"]["annotations"] = {}
    return scene.call(made).outcome is Outcome.OK


def lapse(scene: GroupScene) -> None:
    """Two of four members come to bind, the others never do; claims end."""
    assert set(scene.woken()) == set("abcd")
    steps = [scene.begin(uid, str(scene.node_of(uid, size=4))) for uid in "ab"]
    assert all(isinstance(step, HoldBind) for step in steps)
    scene.pass_s(60.0)
    for step in steps:
        assert scene.end(step).reason is Reason.GROUP_INCOMPLETE
    for uid in "abcd":
        scene.filter(uid, size=4)


def test_a_group_whose_binds_never_come_gives_others_the_room_for_longer_each_time():
    """A volume that is never provisioned: kube-scheduler never calls bind for that member."""
    scene = GroupScene()
    scene.see(*"abcd", size=4)
    for uid in "abcd":
        scene.filter(uid, size=4)
    for number, pause_s in enumerate((5.0, 10.0, 20.0), 1):
        lapse(scene)
        assert scene.filter("a", size=4).reason is Reason.GROUP_NOT_BOUND
        times = "once" if number == 1 else f"{number} times"
        assert f"claimed {times}," in scene.status(KEY).detail
        scene.pass_s(pause_s - 0.1)
        assert scene.woken() == []
        assert single(scene)
        scene.pass_s(0.1)


def test_the_pause_is_bounded():
    """The volume may be there after all."""
    scene = GroupScene()
    scene.see(*"abcd", size=4)
    for uid in "abcd":
        scene.filter(uid, size=4)
    for _ in range(8):
        lapse(scene)
        scene.pass_s(300.0)
    assert set(scene.woken()) == set("abcd")


def test_a_group_that_kept_devices_for_nothing_is_planned_last():
    """Whatever its age."""
    scene = GroupScene()
    claim_all(scene, "a", "b", size=2)
    scene.pass_s(60.0)
    scene.filter("a")
    scene.filter("b")
    uids = [f"new{i}" for i in range(4)]
    scene.see(*uids, group="new", size=4)
    for uid in uids:
        scene.filter(uid, group="new", size=4)
    scene.pass_s(5.0)
    assert scene.woken() == uids
    assert scene.filter("a").reason is Reason.GROUP_NO_ROOM


def test_groups_without_room_do_not_keep_others_from_their_turn():
    """One look plans a bounded number of members, and devices come free all the time."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 2}") for i in range(8)))
    for number in range(40):
        uids = [f"{number}-{i}" for i in range(9)]
        scene.see(*uids, group=f"big{number}", size=9)
        for uid in uids:
            scene.filter(uid, group=f"big{number}", size=9)
    scene.see("a", "b")
    for uid in ("a", "b"):
        scene.filter(uid)
    n_looks = 0
    while scene.groups.claim("a") is None:
        scene.pass_s(0.06)
        scene.groups.devices_freed(1)
        scene.woken()
        n_looks += 1
        assert n_looks < 6


@pytest.mark.parametrize(
    ("n_plans", "pause_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 8.0), (7, 8.0)]
)
def test_plans_that_find_no_room_are_made_at_growing_intervals(n_plans, pause_s):
    """Where few devices come free: a place may come from these too, but not each time."""
    scene = without_room(n_plans)
    scene.gateway.handle(PodDeleted("x"))
    scene.pass_s(pause_s - 0.25)
    assert scene.woken() == []
    scene.pass_s(0.25)
    assert scene.woken() == list("abcd")


def test_a_group_is_planned_soon_once_as_many_devices_came_free_as_it_requests():
    """Whatever it found before."""
    scene = without_room(7)
    scene.gateway.handle(PodDeleted("x"))
    scene.groups.devices_freed(16)
    scene.pass_s(0.5)
    assert scene.woken() == list("abcd")


def without_room(n_plans: int) -> GroupScene:
    """Four members for three nodes, of which so many plans have found no room by now."""
    scene = GroupScene()
    scene.gateway.handle(PodUpdated(facts("x", plan_of("n0", *ids("n0")))))
    scene.see(*"abcd", size=4)
    for uid in "abcd":
        scene.filter(uid, size=4)
    for number in range(n_plans):
        scene.groups.devices_freed(1)
        scene.pass_s(20.0)
        assert scene.woken() == ([] if number else list("abcd"))
        for uid in "abcd":
            assert scene.filter(uid, size=4).reason is Reason.GROUP_NO_ROOM
        assert scene.status(KEY).reason is Reason.GROUP_NO_ROOM
    return scene


def test_a_member_that_is_offered_more_nodes_is_planned_soon():
    """Nodes were uncordoned: no device came free, and there is room."""
    scene = GroupScene()
    uids = ("a", "b", "c")
    scene.see(*uids, size=3)
    for _ in range(4):
        for uid in uids:
            scene.filter(uid, "n0", "n1", size=3)
        scene.groups.devices_freed(1)
        scene.pass_s(3.0)
        assert scene.woken() == []
    for uid in uids:
        scene.filter(uid, size=3)
    scene.pass_s(0.5)
    assert scene.woken() == list(uids)


def test_a_look_is_at_groups_alone_of_which_something_changed():
    """Thousands may wait while pods of others come and go."""
    looked: list[tuple[str, str]] = []

    def is_complete(group: Group) -> bool:
        looked.append(group.key)
        return False

    cluster: Any = SimpleNamespace(domains=SimpleNamespace(tree=None))
    counts: Any = SimpleNamespace(is_complete=is_complete)
    nothing: Any = None  # no group is due
    reconciler = Reconciler(cluster, nothing, nothing, counts)
    groups = {key: Group(key) for key in (("default", f"g{number}") for number in range(100))}
    for key in groups:
        reconciler.add(key)
    for expected in (sorted(groups), []):
        assert reconciler.reconcile(groups, 1.0) == []
        assert sorted(looked) == expected
        looked.clear()
    reconciler.add(("default", "g7"))
    reconciler.reconcile(groups, 2.0)
    assert looked == [("default", "g7")]


def test_an_agenda_has_each_group_once_at_its_earliest_time():
    """Later times of it are void."""
    queue = DelayingQueue()
    one, two = ("a", "one"), ("a", "two")
    queue.add_at(one, 5.0)
    queue.add_at(one, 9.0)
    queue.add_at(one, 3.0)
    queue.add_at(two, float("inf"))
    assert queue.take(2.0) == set()
    assert queue.take(3.0) == {one}
    assert queue.take(9.0) == set()
    queue.add(two)
    assert queue.take(0.0) == {two}
