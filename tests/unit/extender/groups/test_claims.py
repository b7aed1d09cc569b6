"""What is claimed for a group: for all members or for none, near each other, for a while."""

from __future__ import annotations

import pytest

from extender.bind import HoldBind, WriteBinding
from extender.decision_log.replay import replay
from extender.engine.events import (
    BindHeld,
    NodeDeleted,
    PodDeleted,
    PodUpdated,
)
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import facts, ids, plan_of
from tests.unit.extender.group_scene import GroupScene, all_bound, as_json, claim_all, leaf, n_free
from topology.annotations import PlanGroup, decode_plan
from topology.model import names

KEY = ("default", "g")


@pytest.fixture
def scene() -> GroupScene:
    """Nothing placed yet."""
    return GroupScene()


def test_a_plan_is_near_and_names_group_domain_and_rank(scene):
    """What a restarted extender reads back."""
    nodes = claim_all(scene, "a", "b")
    assert set(nodes.values()) in ({"n0", "n1"}, {"n2", "n3"})
    steps = {uid: scene.begin(uid, on) for uid, on in nodes.items()}
    write = scene.gateway.handle(BindHeld(steps["a"], scene.now_s))
    assert isinstance(write, WriteBinding)
    plan = decode_plan(write.annotations[names.PLAN])
    leaf_of = f"S{int(nodes['a'][1]) // 2}"
    assert plan.group == PlanGroup("g", ("leaf", leaf_of))
    assert plan.generation > 0
    assert replay(scene.lines).difference is None


def test_ranks_follow_the_nodes_of_the_tree(scene):
    """Neighbours in rank are neighbours in the network."""
    for uid, rank in (("c", "2"), ("a", "0"), ("d", "3"), ("b", "1")):
        body = scene.pending(uid, size=4)
        made = scene.manifest(uid, size=4)
        made["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": rank}
        scene.gateway.handle(scene.seen(body, body=as_json(made)))
        scene.call(made)
    scene.woken()
    plans = [scene.groups.claim(uid) for uid in "abcd"]
    assert [plan.node for plan in plans] == ["n0", "n1", "n2", "n3"]
    assert [plan.group.rank for plan in plans] == [0, 1, 2, 3]


def test_a_deleted_member_takes_all_claims_with_it(scene):
    """Nothing is held for a group that is not complete."""
    nodes = claim_all(scene, "a", "b")
    held = scene.begin("a", nodes["a"])
    assert isinstance(held, HoldBind)
    scene.lose("b")
    assert n_free(scene) == 16
    assert not scene.groups.releases.is_held("a")
    assert scene.end(held).reason is Reason.GROUP_INCOMPLETE
    assert scene.filter("a").reason is Reason.GROUP_WAITING


def test_where_there_is_no_room_for_spare_members_the_size_is_placed(scene):
    """And more of them as they fit, each alone."""
    scene.see("a", "b", "c", "d", "e", size=4)
    for uid in "abcde":
        scene.filter(uid, size=4)
    assert scene.woken() == ["a", "b", "c", "d"]
    scene.pass_s(1.0)
    assert scene.woken() == []
    assert scene.filter("e", size=4).reason is Reason.GROUP_NO_ROOM


def test_spare_members_that_do_not_all_fit_are_placed_one_by_one(scene):
    """Two more than the size, and room for one."""
    steps = scene.place("a", "b", "c")
    assert all_bound(steps)
    scene.see("d", "e", size=3)
    for uid in ("d", "e"):
        scene.filter(uid, size=3)
    assert scene.woken() == ["d"]
    assert scene.node_of("d", size=3) is not None
    assert scene.filter("e", size=3).outcome is Outcome.REFUSED
    assert scene.end(scene.begin("d", str(scene.node_of("d", size=3)))).outcome is Outcome.OK


def test_claims_end_with_their_time(scene):
    """Nothing is kept without a bound; a member that never came must be tried before the next."""
    nodes = claim_all(scene, "a", "b")
    held = scene.begin("a", nodes["a"])
    scene.pass_s(60.0)
    assert n_free(scene) == 16
    assert scene.end(held).reason is Reason.GROUP_INCOMPLETE
    assert scene.woken() == []  # others may have the devices first
    scene.pass_s(5.0)
    assert set(scene.woken()) == {"a", "b"}


def test_a_group_with_a_member_that_is_not_tried_is_not_planned_again(scene):
    """Its scheduler may have no node for it: claims would keep devices from others for ever."""
    scene.see("a", "b")
    for uid in ("a", "b"):
        scene.filter(uid)
    assert scene.woken() == ["a", "b"]
    scene.filter("a")
    scene.pass_s(60.0)
    assert "a" not in scene.woken()
    assert n_free(scene) == 16
    scene.filter("b")
    scene.pass_s(5.0)
    assert set(scene.woken()) == {"a", "b"}


def test_a_member_that_is_not_offered_its_node_is_planned_elsewhere(scene):
    """kube-scheduler counts what the other member takes there; nothing is bound yet."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 2}") for i in range(4)))
    nodes = claim_all(scene, "a", "b", n_gpus=2)
    assert len(set(nodes.values())) == 1
    (node,) = set(nodes.values())
    held = scene.begin("a", node)
    others = [name for name in scene.names if name != node]
    assert scene.filter("b", *others, n_gpus=2).reason is Reason.GROUP_PLACING
    assert scene.groups.releases.is_held("a")
    assert scene.woken() == ["b"]
    again = scene.filter("b", *others, n_gpus=2)
    assert again.outcome is Outcome.OK
    other = str(scene.groups.claim("b").node)
    assert other != node
    assert int(other[1]) // 2 == int(node[1]) // 2
    assert all_bound([scene.end(scene.begin("b", other)), scene.end(held)])
    assert replay(scene.lines).difference is None


def test_after_some_plans_that_could_not_be_followed_all_is_given_back(scene):
    """Bounded work, and nothing kept for a group that cannot go."""
    claim_all(scene, "a", "b")
    found = []
    for _ in range(4):
        scene.woken()
        claimed = scene.groups.claim("b")
        if claimed is None:
            break
        found.append(claimed.node)
        scene.filter("b", *(name for name in scene.names if name != claimed.node))
    assert len(found) == 4
    assert n_free(scene) == 16
    scene.filter("b")
    assert scene.woken() == []
    scene.pass_s(5.0)
    assert set(scene.woken()) == {"a", "b"}
    again = {scene.groups.claim(uid).node for uid in ("a", "b")}
    assert again == set(scene.names) - set(found)


def test_a_node_that_is_gone_is_no_claim(scene):
    """Filter does not name it, and the member is planned elsewhere."""
    nodes = claim_all(scene, "a", "b")
    scene.gateway.handle(NodeDeleted(nodes["a"]))
    assert scene.filter("a").reason is Reason.GROUP_PLACING
    scene.woken()
    assert scene.node_of("a") not in {None, nodes["a"]}


@pytest.mark.parametrize(
    ("size", "domain", "reason"),
    [
        pytest.param(3, "leaf", Reason.GROUP_NEVER, id="no leaf is large enough"),
        pytest.param(2, "spine", Reason.GROUP_NEVER, id="no node has the level"),
        pytest.param(2, "rack", Reason.GROUP_NEVER, id="there is no such level"),
        pytest.param(2, "leaf", None, id="a leaf has room"),
    ],
)
def test_a_required_domain_is_kept(scene, size, domain, reason):
    """A group that no domain holds when everything is free waits for nothing: it is told so."""
    uids = ["a", "b", "c"][:size]
    fields = {"size": size, "group_domain": domain, "group_policy": "required"}
    scene.see(*uids, **fields)
    for uid in uids:
        scene.filter(uid, **fields)
    scene.woken()
    assert scene.filter("a", **fields).reason is reason
    if reason is not None:
        assert scene.status(KEY).reason is reason


def test_a_group_that_found_no_room_is_planned_when_devices_come_free(scene):
    """And not with each call that kube-scheduler makes."""
    scene.gateway.handle(PodUpdated(facts("x", plan_of("n0", *ids("n0")))))
    uids = ("a", "b", "c", "d")
    scene.see(*uids, size=4)
    for uid in uids:
        scene.filter(uid, size=4)
    assert scene.woken() == []
    assert scene.filter("a", size=4).reason is Reason.GROUP_NO_ROOM
    reason, detail = scene.status(KEY).reason, scene.status(KEY).detail
    assert (reason, detail) == (Reason.GROUP_NO_ROOM, "the cluster has room for 3 of 4 members")
    scene.pass_s(1.0)
    scene.gateway.handle(PodDeleted("x"))
    assert scene.woken() == list(uids)


def test_higher_priority_goes_first_then_the_older_group(scene):
    """Room for one group of three."""
    for group, priority in (("old", 0), ("new", 0), ("high", 5)):
        uids = [f"{group}{i}" for i in range(3)]
        for uid in uids:
            made = scene.manifest(uid, group, 3)
            made["spec"]["priority"] = priority
            one = scene.pending(uid, group, 3)
            scene.gateway.handle(scene.seen(one, body=as_json(made)))
            scene.call(made)
        scene.now_s += 0.1
    assert scene.woken() == ["high0", "high1", "high2"]
    scene.lose("high0", "high1", "high2")
    scene.pass_s(1.0)
    assert scene.woken() == ["old0", "old1", "old2"]


def test_a_replacement_goes_to_the_node_of_the_member_that_ended(scene):
    """Its data and the others are there; a whole group that starts over goes where it fits best."""
    assert all_bound(scene.place("a", "b", "c"))
    old = scene.where("b")
    scene.gateway.handle(PodDeleted("b"))
    assert scene.groups.readings.counts(KEY) == (0, 2, 0)
    scene.see("b2", size=3)
    scene.filter("b2", size=3)
    assert scene.woken() == ["b2"]
    assert scene.node_of("b2", size=3) == old


def test_a_replacement_stays_in_the_domain_where_its_node_is_taken():
    """Nearest first; only a full domain sends it to the next one."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 3}") for i in range(6)))
    assert all_bound(scene.place("a", "b"))
    old = scene.where("b")
    scene.gateway.handle(PodDeleted("b"))
    scene.gateway.handle(PodUpdated(facts("other", plan_of(old, *ids(old)))))
    scene.see("b2")
    scene.filter("b2")
    scene.woken()
    near = scene.where("a")
    assert int(str(scene.node_of("b2"))[1]) // 3 == int(near[1]) // 3
