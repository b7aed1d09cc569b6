"""Who is a member of a group, and what each one is answered meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.bind import BindCall, WriteBinding
from extender.engine.events import (
    BindRequested,
    PodDeleted,
    PodUpdated,
)
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import facts, ids, plan_of
from tests.unit.extender.group_scene import GroupScene, all_bound, as_json, claim_all, n_free
from tests.unit.extender.pods import binding

KEY = ("default", "g")


@pytest.fixture
def scene() -> GroupScene:
    """Nothing placed yet."""
    return GroupScene()


def test_members_get_one_constant_reason_until_all_are_there(scene):
    """Counts in it would go stale: a new member is no event for the others."""
    scene.see("a", size=3)
    scene.see("b", size=3)
    first = scene.filter("a", size=3)
    assert (first.outcome, first.reason) == (Outcome.REFUSED, Reason.GROUP_WAITING)
    assert scene.filter("b", size=3).body == first.body
    assert scene.woken() == []
    assert n_free(scene) == 16


def test_the_dead_do_not_count(scene):
    """A pod that filter was called for after its end was shown."""
    scene.see("a", "b", size=3)
    for uid in ("a", "b", "ghost"):
        scene.filter(uid, size=3)
    assert scene.woken() == []
    assert scene.groups.readings.counts(KEY) == (2, 0, 3)
    scene.pass_s(61.0)
    assert "ghost" not in scene.groups.waiting_uids


def test_a_call_before_the_watch_shows_the_pod_is_kept(scene):
    """The watch may be late; what kube-scheduler offered then is known once it shows the pod."""
    scene.see("a")
    scene.filter("a")
    scene.filter("b")
    scene.relist("a")
    assert "b" in scene.groups.waiting_uids
    scene.see("b")
    assert scene.woken() == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        pytest.param({"size": 3}, "pod-a states size 2, pod-c size 3", id="another size"),
        pytest.param(
            {"group_domain": "leaf"},
            "pod-a states domain any, pod-c domain leaf",
            id="another domain",
        ),
        pytest.param(
            {"group_policy": "required"},
            "pod-a states policy preferred, pod-c policy required",
            id="another policy",
        ),
        pytest.param(
            {"size": 3, "group_domain": "leaf"},
            "pod-a states size 2 and domain any, pod-c size 3 and domain leaf",
            id="two of them",
        ),
    ],
)
def test_members_that_differ_are_refused_with_that_reason(scene, changes, detail):
    """A user sees it on all of them, and who they are; what was claimed before is given back."""
    claim_all(scene, "a", "b")
    scene.see("c", **changes)
    assert scene.filter("a").reason is Reason.GROUP_DIFFERS
    assert scene.groups.readings.status(KEY).detail == detail
    assert n_free(scene) == 16
    scene.lose("c")
    assert scene.woken() == ["a", "b"]


def test_the_same_group_name_in_another_namespace_is_another_group(scene):
    """Names are chosen by users of one namespace."""
    scene.see("a")
    other = scene.pending("b")
    made = scene.manifest("b")
    made["metadata"]["namespace"] = "other"
    scene.gateway.handle(scene.seen(other, namespace="other", body=as_json(made)))
    scene.filter("a")
    scene.call(made)
    assert scene.woken() == []
    assert scene.groups.readings.counts(KEY) == (1, 0, 2)
    assert scene.groups.readings.counts(("other", "g")) == (1, 0, 2)


def test_a_pod_that_leaves_its_group_is_a_pod_like_others(scene):
    """Its annotations were edited; filter and watch may say so in any order."""
    claim_all(scene, "a", "b")
    made = scene.manifest("a")
    made["metadata"]["annotations"] = {}
    answer = scene.call(made)
    assert answer.outcome is Outcome.OK
    scene.gateway.handle(scene.seen(scene.pending("a"), annotations={}, body=as_json(made)))
    assert "a" not in scene.groups.waiting_uids
    assert scene.filter("b").reason is Reason.GROUP_WAITING


def test_another_pod_of_the_same_name_is_another_member(scene):
    """A StatefulSet's pod that is made again has its name and another uid."""
    claim_all(scene, "a", "b")
    scene.lose("b")
    again = scene.pending("b2")
    scene.gateway.handle(scene.seen(replace(again, name="pod-b")))
    scene.filter("b2")
    assert set(scene.woken()) == {"a", "b2"}


def test_a_member_that_another_writer_bound_gives_its_claim_back(scene):
    """A plan without a group, or none: it is no member any more."""
    claim_all(scene, "a", "b")
    scene.gateway.handle(PodUpdated(facts("a", plan_of("n3", *ids("n3", 0)))))
    assert "a" not in scene.groups.waiting_uids
    assert n_free(scene) == 15


def test_a_group_of_which_no_member_is_bound_any_more_starts_over(scene):
    """A job that is made again waits for all its members."""
    assert all_bound(scene.place("a", "b"))
    for uid in ("a", "b"):
        scene.gateway.handle(PodDeleted(uid))
    scene.see("c")
    scene.filter("c")
    assert scene.woken() == []
    assert scene.filter("c").reason is Reason.GROUP_WAITING


def test_calls_of_pods_without_a_group_are_passed_on(scene):
    """They are answered as they always were."""
    made = scene.manifest("solo", n_gpus=1)
    made["metadata"]["annotations"] = {}
    assert scene.call(made).outcome is Outcome.OK
    call = BindCall.decode(binding("solo", "n0"))
    assert isinstance(scene.gateway.handle(BindRequested(call, scene.now_s)), WriteBinding)
