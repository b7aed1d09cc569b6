"""Members wait for each other, get their claims together, and lose them together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from extender.bind import BindCall, HoldBind, WriteBinding, WriteResult, Written
from extender.decision_log.replay import replay
from extender.engine.events import (
    BindAbandoned,
    BindHeld,
    BindingWritten,
    BindRequested,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
)
from extender.protocol import Outcome, Reason
from tests.unit.extender.feeds import facts, ids, plan_of, report
from tests.unit.extender.group_scene import GroupScene, all_bound, leaf
from tests.unit.extender.pods import binding
from topology.annotations import PlanGroup, decode_plan
from topology.model import names

KEY = ("default", "g")


@pytest.fixture
def scene() -> GroupScene:
    """Nothing placed yet."""
    return GroupScene()


def as_json(content: object) -> bytes:
    """A pod's body."""
    return json.dumps(content).encode()


def claim_all(scene: GroupScene, *uids: str, **fields: object) -> dict[str, str]:
    """Members come, are tried, planned, and tried again; returns their nodes."""
    scene.see(*uids, **fields)
    for uid in uids:
        scene.filter(uid, **fields)
    scene.woken()
    return {uid: str(scene.node_of(uid, **fields)) for uid in uids}


def n_free(scene: GroupScene) -> int:
    """Free devices of all nodes."""
    return sum(scene.free(name) for name in scene.names)


def test_members_get_one_constant_reason_until_all_are_there(scene):
    """Counts in it would go stale: a new member is no event for the others."""
    scene.see("a", size=3)
    scene.see("b", size=3)
    first = scene.filter("a", size=3)
    assert (first.outcome, first.reason) == (Outcome.REFUSED, Reason.GROUP_WAITING)
    assert scene.filter("b", size=3).body == first.body
    assert scene.woken() == []
    assert n_free(scene) == 16


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


def test_the_dead_do_not_count(scene):
    """A pod that filter was called for after its end was shown."""
    scene.see("a", "b", size=3)
    for uid in ("a", "b", "ghost"):
        scene.filter(uid, size=3)
    assert scene.woken() == []
    assert scene.groups.counts(KEY) == (2, 0, 3)
    scene.pass_s(61.0)
    assert not scene.groups.has_member("ghost")


def test_a_call_before_the_watch_shows_the_pod_is_kept(scene):
    """The watch may be late; what kube-scheduler offered then is known once it shows the pod."""
    scene.see("a")
    scene.filter("a")
    scene.filter("b")
    scene.relist("a")
    assert scene.groups.has_member("b")
    scene.see("b")
    assert scene.woken() == ["a", "b"]


def test_a_deleted_member_takes_all_claims_with_it(scene):
    """Nothing is held for a group that is not complete."""
    nodes = claim_all(scene, "a", "b")
    held = scene.begin("a", nodes["a"])
    assert isinstance(held, HoldBind)
    scene.lose("b")
    assert n_free(scene) == 16
    assert not scene.groups.is_held("a")
    assert scene.end(held).reason is Reason.GROUP_INCOMPLETE
    assert scene.filter("a").reason is Reason.GROUP_WAITING


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
    assert scene.groups.counts(KEY) == (0, 3, 0)


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


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"size": 3}, id="another size"),
        pytest.param({"group_domain": "leaf"}, id="another domain"),
        pytest.param({"group_policy": "required"}, id="another policy"),
    ],
)
def test_members_that_differ_are_refused_with_that_reason(scene, changes):
    """A user sees it on all of them; what was claimed before is given back."""
    claim_all(scene, "a", "b")
    scene.see("c", **changes)
    assert scene.filter("a").reason is Reason.GROUP_DIFFERS
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
    assert scene.groups.counts(KEY) == (1, 0, 2)
    assert scene.groups.counts(("other", "g")) == (1, 0, 2)


def test_a_pod_that_leaves_its_group_is_a_pod_like_others(scene):
    """Its annotations were edited; filter and watch may say so in any order."""
    claim_all(scene, "a", "b")
    made = scene.manifest("a")
    made["metadata"]["annotations"] = {}
    answer = scene.call(made)
    assert answer.outcome is Outcome.OK
    scene.gateway.handle(scene.seen(scene.pending("a"), annotations={}, body=as_json(made)))
    assert not scene.groups.has_member("a")
    assert scene.filter("b").reason is Reason.GROUP_WAITING


def test_another_pod_of_the_same_name_is_another_member(scene):
    """A StatefulSet's pod that is made again has its name and another uid."""
    claim_all(scene, "a", "b")
    scene.lose("b")
    again = scene.pending("b2")
    scene.gateway.handle(scene.seen(replace(again, name="pod-b")))
    scene.filter("b2")
    assert set(scene.woken()) == {"a", "b2"}


def test_claims_end_with_their_time(scene):
    """Nothing is kept without a bound; a member that never came must be tried before the next."""
    nodes = claim_all(scene, "a", "b")
    held = scene.begin("a", nodes["a"])
    scene.pass_s(60.0)
    assert n_free(scene) == 16
    assert scene.end(held).reason is Reason.GROUP_INCOMPLETE
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
    assert scene.groups.is_held("a")
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


def test_devices_that_fail_after_the_claim_are_replaced_before_anything_is_bound(scene):
    """The last bind call would release the group."""
    nodes = claim_all(scene, "a", "b")
    held = scene.begin("a", nodes["a"])
    bad = leaf(nodes["a"], "S0", devices=report(ids(nodes["a"])[0]))
    scene.gateway.handle(NodeSeen(bad))
    last = scene.begin("b", nodes["b"])
    assert isinstance(last, HoldBind)
    assert scene.end(held).reason is Reason.GROUP_INCOMPLETE
    assert scene.groups.is_held("b")
    assert scene.woken() == ["a"]
    again = scene.begin("a", str(scene.node_of("a")))
    assert all_bound([scene.end(again), scene.end(last)])


def test_a_node_that_is_gone_is_no_claim(scene):
    """Filter does not name it, and the member is planned elsewhere."""
    nodes = claim_all(scene, "a", "b")
    scene.gateway.handle(NodeGone(nodes["a"]))
    assert scene.filter("a").reason is Reason.GROUP_PLACING
    scene.woken()
    assert scene.node_of("a") not in {None, nodes["a"]}


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
    assert scene.groups.is_held("a")
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
    assert scene.groups.counts(KEY) == (1, 1, 2)
    assert scene.woken() == ["b"]
    on = str(scene.node_of("b"))
    near = scene.gateway.cluster.pods.get("a").node
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
    assert scene.groups.counts(KEY) == (1, 1, 2)
    text = write.annotations[names.PLAN]
    scene.gateway.handle(PodSeen(facts("a", text)))
    assert scene.end(steps["b"]).outcome is Outcome.OK
    assert scene.groups.counts(KEY) == (0, 2, 0)


def test_a_replacement_goes_to_the_node_of_the_member_that_ended(scene):
    """Its data and the others are there; a whole group that starts over goes where it fits best."""
    assert all_bound(scene.place("a", "b", "c"))
    old = scene.gateway.cluster.pods.get("b").node
    scene.gateway.handle(PodGone("b"))
    assert scene.groups.counts(KEY) == (0, 2, 0)
    scene.see("b2", size=3)
    scene.filter("b2", size=3)
    assert scene.woken() == ["b2"]
    assert scene.node_of("b2", size=3) == old


def test_a_replacement_stays_in_the_domain_where_its_node_is_taken():
    """Nearest first; only a full domain sends it to the next one."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 3}") for i in range(6)))
    assert all_bound(scene.place("a", "b"))
    old = scene.gateway.cluster.pods.get("b").node
    scene.gateway.handle(PodGone("b"))
    scene.gateway.handle(PodSeen(facts("other", plan_of(old, *ids(old)))))
    scene.see("b2")
    scene.filter("b2")
    scene.woken()
    near = scene.gateway.cluster.pods.get("a").node
    assert int(str(scene.node_of("b2"))[1]) // 3 == int(near[1]) // 3


def test_a_group_of_which_no_member_is_bound_any_more_starts_over(scene):
    """A job that is made again waits for all its members."""
    assert all_bound(scene.place("a", "b"))
    for uid in ("a", "b"):
        scene.gateway.handle(PodGone(uid))
    scene.see("c")
    scene.filter("c")
    assert scene.woken() == []
    assert scene.filter("c").reason is Reason.GROUP_WAITING


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
        assert scene.groups.refusal(KEY)[0] is reason


def test_a_group_that_found_no_room_is_planned_when_devices_come_free(scene):
    """And not with each call that kube-scheduler makes."""
    scene.gateway.handle(PodSeen(facts("x", plan_of("n0", *ids("n0")))))
    uids = ("a", "b", "c", "d")
    scene.see(*uids, size=4)
    for uid in uids:
        scene.filter(uid, size=4)
    assert scene.woken() == []
    assert scene.filter("a", size=4).reason is Reason.GROUP_NO_ROOM
    reason, detail = scene.groups.refusal(KEY)
    assert (reason, detail) == (Reason.GROUP_NO_ROOM, "the cluster has room for 3 of 4 members")
    scene.pass_s(1.0)
    scene.gateway.handle(PodGone("x"))
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


def test_a_member_that_another_writer_bound_gives_its_claim_back(scene):
    """A plan without a group, or none: it is no member any more."""
    claim_all(scene, "a", "b")
    scene.gateway.handle(PodSeen(facts("a", plan_of("n3", *ids("n3", 0)))))
    assert not scene.groups.has_member("a")
    assert n_free(scene) == 15


def test_calls_of_pods_without_a_group_are_passed_on(scene):
    """They are answered as they always were."""
    made = scene.manifest("solo", n_gpus=1)
    made["metadata"]["annotations"] = {}
    assert scene.call(made).outcome is Outcome.OK
    call = BindCall.decode(binding("solo", "n0"))
    assert isinstance(scene.gateway.handle(BindRequested(call, scene.now_s)), WriteBinding)
