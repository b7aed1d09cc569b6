"""Members that kube-scheduler has tried before we could see it are woken, and no others."""

from __future__ import annotations

import pytest

from extender.decision_log.replay import replay
from extender.protocol import Reason
from tests.unit.extender.group_scene import GroupScene, all_bound


@pytest.fixture
def scene() -> GroupScene:
    """Nothing placed yet."""
    return GroupScene()


def test_members_that_were_pending_at_the_start_are_woken_once_all_are_there(scene):
    """kube-scheduler has parked them; it tries the last one by itself."""
    scene.relist("a")
    assert scene.woken() == []
    scene.see("b")
    assert scene.woken() == ["a"]
    assert scene.woken() == []
    assert replay(scene.lines).difference is None


def test_nothing_is_planned_before_pending_pods_were_listed():
    """A group may have more members than were seen; they wait with the usual reason."""
    scene = GroupScene(is_listed=False)
    scene.see("a", "b")
    for uid in ("a", "b"):
        assert scene.filter(uid).reason is Reason.GROUP_WAITING
    scene.pass_s(10.0)
    assert scene.woken() == []
    assert scene.filter("a").reason is Reason.GROUP_WAITING
    scene.relist("a", "b")
    assert scene.woken() == ["a", "b"]
    assert {scene.node_of(uid) for uid in ("a", "b")} in ({"n0", "n1"}, {"n2", "n3"})
    assert replay(scene.lines).difference is None


def test_new_members_are_left_to_kube_scheduler_for_some_seconds(scene):
    """It tries each new pod at once; where it does not come, it is woken at growing intervals."""
    scene.see("a", "b")
    assert scene.woken() == []
    found = []
    for second in range(1, 50):
        scene.pass_s(1.0)
        if scene.woken():
            found.append(second)
    assert found == [5, 15, 35]


def test_where_filter_is_never_called_members_are_not_woken_for_ever(scene):
    """As beside a kube-scheduler that does not lead; with the first call it goes on."""

    def woken_until(end_s: float) -> list[float]:
        found = []
        while scene.now_s < end_s:
            scene.pass_s(1.0)
            if "a" in scene.woken():
                found.append(scene.now_s - begin_s)
        return found

    begin_s = scene.now_s
    scene.see("a", "b")
    assert woken_until(begin_s + 1000.0) == [5.0, 15.0, 35.0, 75.0]
    scene.filter("single", group="alone", size=None)
    assert woken_until(begin_s + 1600.0) != []
    assert replay(scene.lines).difference is None


def test_members_that_were_tried_are_planned_and_woken(scene):
    """One plan for both, and each is woken for its node."""
    scene.relist("a", "b")
    assert scene.woken() == ["a", "b"]
    for uid in ("a", "b"):
        assert scene.filter(uid).reason is Reason.GROUP_WAITING
    assert scene.woken() == ["a", "b"]
    nodes = {scene.node_of(uid) for uid in ("a", "b")}
    assert nodes in ({"n0", "n1"}, {"n2", "n3"})


def test_a_bound_member_counts_after_a_restart(scene):
    """Its plan names the group; the others are woken for their places near it."""
    assert all_bound(scene.place("a", "b"))
    again = GroupScene()
    bound = [scene.gateway.cluster.pods.get(uid) for uid in ("a", "b")]
    assert [one.plan.group.name for one in bound] == ["g", "g"]
    again.relist("c")
    assert again.woken() == []


def test_nothing_is_planned_from_a_state_that_is_not_fresh(scene):
    """What is free may be another's since."""
    scene.relist("a", "b")
    scene.now_s += 1000.0
    assert scene.woken() == []
    scene.pass_s(0.0)
    assert scene.woken() == ["a", "b"]


def test_a_pod_with_scheduling_gates_is_not_there_yet(scene):
    """kube-scheduler does not try it, and the others would hold their claims for it."""
    gated = scene.pending("b")
    scene.relist("a")
    scene.gateway.handle(scene.seen(gated, is_gated=True))
    assert scene.woken() == []
    scene.gateway.handle(scene.seen(gated, is_gated=False))
    assert scene.woken() == ["a"]


def test_members_that_were_answered_that_others_are_missing_are_woken_for_the_reason(scene):
    """Where no domain holds the group: else their status would say the former for minutes."""
    scene.see(*"abcdef", size=6)
    for uid in "abcdef":
        assert scene.filter(uid, size=6).reason is Reason.GROUP_WAITING
    assert scene.woken() == []
    scene.pass_s(14.5)
    assert scene.woken() == []
    scene.pass_s(0.5)
    assert scene.woken() == list("abcdef")
    for uid in "abcdef":
        assert scene.filter(uid, size=6).reason is Reason.GROUP_NEVER
    scene.pass_s(3600.0)
    assert scene.woken() == []
    assert replay(scene.lines).difference is None


def test_a_member_that_is_not_called_for_is_woken_again_for_the_reason(scene):
    """A wake may be lost; kube-scheduler may be restarting."""
    scene.see(*"abcdef", size=6)
    for uid in "abcdef":
        scene.filter(uid, size=6)
    found = []
    for second in range(1, 50):
        scene.pass_s(1.0)
        if scene.woken():
            found.append(second)
    assert found == [15, 30, 45]


def test_a_member_that_is_never_called_for_is_woken_less_and_less_often(scene):
    """On a full cluster kube-scheduler's own count of GPUs leaves no node for it, for hours."""
    scene.see(*"abcdef", size=6)
    for uid in "abcdef":
        scene.filter(uid, size=6)
    found: list[int] = []
    for second in range(1, 1000):
        scene.pass_s(1.0)
        if scene.woken():
            found.append(second)
    assert found == [15, 30, 45, 75, 135, 255, 495, 735, 975]
    assert scene.filter("a", size=6).reason is Reason.GROUP_NEVER
    assert replay(scene.lines).difference is None
