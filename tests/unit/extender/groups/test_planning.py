"""Plans of groups: unlike members, nodes without topology, samples of nodes, bounded looks."""

from __future__ import annotations

import pytest

from extender.decision_log.replay import replay
from extender.engine.events import NodeDeleted, NodeUpdated, PodDeleted, PodUpdated
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import bare, facts, ids, plan_of
from tests.unit.extender.group_scene import (
    GroupScene,
    all_bound,
    as_json,
    claim_all,
    leaf,
    n_free,
)

KEY = ("default", "g")


@pytest.fixture
def scene() -> GroupScene:
    """Nothing placed yet."""
    return GroupScene()


def see(scene: GroupScene, uid: str, n_gpus: int, size: int) -> None:
    """A member comes and is tried."""
    scene.see(uid, size=size, n_gpus=n_gpus)
    scene.filter(uid, size=size, n_gpus=n_gpus)


def test_members_that_request_different_counts_are_placed_together(scene):
    """Each on devices of its own, in one leaf."""
    for uid, n_gpus in (("a", 4), ("b", 2), ("c", 1), ("d", 1)):
        see(scene, uid, n_gpus, 4)
    assert set(scene.woken()) == set("abcd")
    plans = [scene.groups.claim(uid) for uid in "abcd"]
    assert len({one for plan in plans for one in plan.ids}) == 8
    assert len({int(plan.node[1]) // 2 for plan in plans}) == 1
    assert replay(scene.lines).difference is None


def test_members_that_request_different_counts_and_do_not_fit_wait(scene):
    """Enough GPUs are free, but not together."""
    scene.gateway.handle(PodUpdated(facts("x", plan_of("n0", *ids("n0", 0, 1)))))
    for i, n_gpus in enumerate((4, 4, 4, 2, 1)):
        see(scene, f"m{i}", n_gpus, 5)
    assert scene.woken() == []
    assert scene.filter("m0", size=5).reason is Reason.GROUP_NO_ROOM
    assert n_free(scene) == 14


def test_nodes_without_topology_take_members_by_count():
    """Their plans name no devices; claims count there as well."""
    scene = GroupScene(*(bare(f"n{i}") for i in range(2)))
    nodes = claim_all(scene, "a", "b")
    assert set(nodes.values()) == {"n0", "n1"}
    assert scene.filter("other", group="h", size=1).outcome is Outcome.REFUSED
    steps = [scene.begin(uid, on) for uid, on in nodes.items()]
    assert all_bound([scene.end(step) for step in steps])
    assert scene.groups.readings.counts(KEY) == (0, 2, 0)


def test_a_sample_of_the_nodes_leaves_none_out():
    """With percentageOfNodesToScore, what is missing in one call is named in the next."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 2}") for i in range(120)))
    first, last = scene.names[:100], scene.names[20:]
    scene.see("a", "b")
    for uid in ("a", "b"):
        scene.filter(uid, *last)
    scene.woken()
    claimed = scene.groups.claim("a").node
    without = last if claimed in first[:20] else [n for n in scene.names if n != claimed][:100]
    assert scene.filter("a", *without).reason is Reason.GROUP_PLACING
    assert scene.groups.claim("a").node == claimed
    scene.pass_s(5.0)
    assert "a" in scene.woken()
    assert scene.node_of("a") == claimed


def test_a_node_that_is_new_may_take_members_too(scene):
    """It was in no filter call: nobody has said that it may not."""
    for name in ("n0", "n2", "n3"):
        scene.gateway.handle(PodUpdated(facts(f"x-{name}", plan_of(name, *ids(name)))))
    scene.see("a", "b")
    scene.filter("a", "n1", "n2", "n3")
    scene.filter("b", "n1", "n2", "n3")
    assert scene.woken() == []
    scene.gateway.handle(NodeUpdated(leaf("n4", "S0")))
    scene.pass_s(1.0)
    assert scene.woken() == ["a", "b"]
    scene.gateway.handle(PodDeleted("x-n0"))
    assert {scene.groups.claim(uid).node for uid in "ab"} == {"n1", "n4"}


def test_one_look_plans_a_bounded_number_of_members():
    """The others follow soon after; the event loop has other work."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 8}") for i in range(50)))
    for group in ("a", "b", "c"):
        uids = [f"{group}{i}" for i in range(65)]
        scene.see(*uids, group=group, size=65, n_gpus=1)
        for uid in uids:
            scene.filter(uid, group=group, size=65, n_gpus=1)
    assert {uid[0] for uid in scene.woken()} == {"a", "b"}
    assert scene.woken() == []
    scene.pass_s(0.1)
    assert {uid[0] for uid in scene.woken()} == {"c"}


def test_a_group_is_planned_when_nodes_get_other_labels(scene):
    """No device came free; the domains are other ones."""
    fields = {"size": 3, "group_domain": "leaf", "group_policy": "required"}
    scene.see("a", "b", "c", **fields)
    for uid in "abc":
        scene.filter(uid, **fields)
    assert scene.woken() == []
    assert scene.filter("a", **fields).reason is Reason.GROUP_NEVER
    scene.gateway.handle(NodeUpdated(leaf("n2", "S0")))
    scene.pass_s(1.0)
    assert scene.woken() == ["a", "b", "c"]


def test_nodes_are_avoided_for_a_while_only(scene):
    """A node that members were not offered may have room later."""
    scene.gateway.handle(NodeDeleted("n2"))
    scene.gateway.handle(NodeDeleted("n3"))
    scene.names = ["n0", "n1"]
    claim_all(scene, "a", "b")
    for _ in range(4):
        scene.woken()
        claim = scene.groups.claim("b") or scene.groups.claim("a")
        if claim is None:
            scene.pass_s(1.0)
            continue
        scene.filter("b", *(name for name in scene.names if name != claim.node))
    for uid in ("a", "b"):
        scene.filter(uid)
    scene.pass_s(70.0)
    scene.filter("b")
    scene.filter("a")
    assert set(scene.woken()) == {"a", "b"}


def test_a_replacement_stays_in_the_required_domain(scene):
    """Another leaf has room; the group would be in two."""
    fields = {"group_domain": "leaf", "group_policy": "required"}
    assert all_bound(scene.place("a", "b", **fields))
    old = scene.where("b")
    scene.gateway.handle(PodDeleted("b"))
    scene.gateway.handle(PodUpdated(facts("x", plan_of(old, *ids(old)))))
    scene.see("b2", **fields)
    scene.filter("b2", **fields)
    assert scene.woken() == []
    assert scene.filter("b2", **fields).reason is Reason.GROUP_NO_ROOM
    scene.gateway.handle(PodDeleted("x"))
    scene.pass_s(1.0)
    assert scene.woken() == ["b2"]


def test_a_member_that_must_be_near_those_that_run_says_so(scene):
    """As of a rolling update that starts pods first: another leaf is free, and may not be used."""
    fields = {"group_domain": "leaf", "group_policy": "required"}
    assert all_bound(scene.place("a", "b", **fields))
    scene.see("c", **fields)
    scene.filter("c", **fields)
    scene.woken()
    assert scene.filter("c", **fields).reason is Reason.GROUP_NO_ROOM
    assert scene.groups.readings.status(KEY).detail == (
        "the freest leaf (S0) has room for 0 of 1 members; "
        "all must be in the leaf of the members that have a node already"
    )


def test_a_member_that_says_another_group_moves_there(scene):
    """Its annotations were edited."""
    claim_all(scene, "a", "b")
    scene.see("a", group="h")
    assert scene.groups.readings.counts(KEY) == (1, 0, 2)
    assert scene.groups.readings.counts(("default", "h")) == (1, 0, 2)
    assert n_free(scene) == 16


def test_a_member_whose_wishes_changed_is_planned_again(scene):
    """The claim was made for what it requested before."""
    claim_all(scene, "a", "b")
    scene.see("a", affinity="nvlink")
    assert scene.groups.claim("a") is None
    scene.filter("a", affinity="nvlink")
    assert scene.woken() == ["a"]


def test_a_pod_without_a_uid_waits(scene):
    """It could not be told from others; kube-scheduler never sends one."""
    made = scene.manifest("a")
    made["metadata"]["uid"] = ""
    assert scene.call(made).reason is Reason.GROUP_WAITING
    assert scene.groups.n_groups == 0


def test_members_of_different_priority_are_planned_as_the_least_of_them(scene):
    """What a pod of higher priority may take is not every member's."""
    for uid, priority in (("a", 0), ("b", 5)):
        made = scene.manifest(uid)
        made["spec"]["priority"] = priority
        scene.gateway.handle(scene.seen(scene.pending(uid), body=as_json(made)))
        scene.call(made)
    assert scene.woken() == ["a", "b"]
