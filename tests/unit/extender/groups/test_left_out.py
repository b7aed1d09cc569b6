"""Nodes that kube-scheduler leaves out of its calls: no place for members, or a sample of them."""

from __future__ import annotations

import json

import pytest

from extender.decision_log.replay import replay
from extender.engine.events import NodeDeleted
from extender.groups.claims import MOST_S
from extender.protocol import Outcome, Reason
from tests.unit.extender.group_scene import GroupScene, all_bound, claim_all, leaf, n_free

KEY = ("default", "g")


def many(n_nodes: int) -> GroupScene:
    """Leaves of eight nodes."""
    return GroupScene(*(leaf(f"n{i:03}", f"S{i // 8}") for i in range(n_nodes)))


@pytest.mark.parametrize("n_named", [198, 100, 99])
def test_a_group_goes_to_the_nodes_that_are_named(n_named):
    """Two of 200 are cordoned: that these are a whole percentage is chance."""
    scene = many(200)
    named = scene.names[-n_named:]
    scene.see("a", "b")
    for uid in ("a", "b"):
        scene.filter(uid, *named)
    assert scene.woken() == ["a", "b"]
    for uid in ("a", "b"):
        assert json.loads(scene.filter(uid, *named).body)["NodeNames"][0] in named
    assert replay(scene.lines).difference is None


def test_a_node_that_two_equal_calls_leave_out_is_no_place():
    """The first may have been a sample; the second one shows that it was not."""
    scene = many(200)
    nodes = claim_all(scene, "a", "b")
    left = [name for name in scene.names if name != nodes["a"]][:198]
    assert scene.filter("a", *left).reason is Reason.GROUP_PLACING
    assert scene.groups.claim("a").node == nodes["a"]
    assert scene.woken() == []
    scene.pass_s(5.0)
    assert scene.woken() == ["a"]
    assert scene.filter("a", *left).reason is Reason.GROUP_PLACING
    assert scene.woken() == ["a"]
    again = json.loads(scene.filter("a", *left).body)["NodeNames"]
    assert again[0] in left


def test_where_two_calls_differ_at_equal_size_the_nodes_of_both_count():
    """kube-scheduler looks at a part of the nodes, and at another one the next time."""
    scene = many(200)
    first, second = scene.names[:100], scene.names[100:]
    full = [f"m{i}" for i in range(104)]
    scene.see(*full, size=104)
    for uid in full:
        scene.filter(uid, *first, size=104)
    assert scene.woken() == []
    assert scene.filter("m0", *first, size=104).reason is Reason.GROUP_NO_ROOM
    for uid in full:
        scene.filter(uid, *second, size=104)
    scene.pass_s(1.0)
    scene.woken()
    nodes = {scene.groups.claim(uid).node for uid in full}
    assert len(nodes) == 104
    one = next(uid for uid in full if scene.groups.claim(uid).node in second)
    node = scene.groups.claim(one).node
    assert scene.filter(one, *first, size=104).reason is Reason.GROUP_PLACING
    assert scene.groups.claim(one).node == node
    assert scene.filter(one, *second, size=104).outcome is Outcome.OK


@pytest.mark.parametrize("is_only", [False, True], ids=["one of several", "the only one"])
def test_a_nominated_node_is_tried_before_the_others(is_only):
    """kube-scheduler names it alone first: what it leaves out there it names in the next call."""
    scene = GroupScene()
    nodes = claim_all(scene, "a", "b")
    other = next(name for name in scene.names if name not in nodes.values())
    manifest = scene.manifest("a")
    manifest["status"]["nominatedNodeName"] = other
    assert scene.call(manifest, other).reason is Reason.GROUP_PLACING
    assert scene.groups.claim("a").node == nodes["a"]
    if is_only:
        assert scene.call(manifest, other).reason is Reason.GROUP_PLACING
        scene.woken()
        assert scene.groups.claim("a").node == other
    else:
        assert json.loads(scene.call(manifest).body)["NodeNames"] == [nodes["a"]]
    assert replay(scene.lines).difference is None


def test_a_node_that_is_not_in_the_call_is_never_named():
    """kube-scheduler would end the pod's cycle with an error."""
    scene = GroupScene()
    nodes = claim_all(scene, "a", "b")
    scene.gateway.handle(NodeDeleted(nodes["a"]))
    rest = [name for name in scene.names if name != nodes["a"]]
    answer = scene.filter("a", *rest)
    assert answer.reason is Reason.GROUP_PLACING
    assert json.loads(answer.body)["NodeNames"] == []


def test_members_that_cannot_share_a_node_are_spread_at_once():
    """Each requests most of a node's CPU: the second one is not offered the first one's node."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 8}") for i in range(8)))
    fields = {"size": 8, "n_gpus": 1}
    uids = [f"m{i}" for i in range(8)]
    scene.see(*uids, **fields)
    taken: dict[str, str] = {}
    for uid in uids:
        scene.filter(uid, **fields)
    for _ in range(3):
        scene.woken()
        for uid in uids:
            left = [name for name in scene.names if name not in taken.values()]
            if uid not in taken:
                names = json.loads(scene.filter(uid, *left, **fields).body)["NodeNames"]
                taken |= {uid: names[0]} if names else {}
    assert len(set(taken.values())) == 8
    assert all_bound([scene.end(step) for step in [scene.begin(*one) for one in taken.items()]])
    assert replay(scene.lines).difference is None


def test_members_share_nodes_after_all_where_there_is_no_other_place():
    """What one node took is no rule for the others."""
    scene = GroupScene(*(leaf(f"n{i}", "S0") for i in range(2)))
    fields = {"size": 5, "n_gpus": 1}
    uids = [f"m{i}" for i in range(5)]
    scene.see(*uids, **fields)
    for uid in uids:
        scene.filter(uid, **fields)
    assert scene.woken() == uids
    first = scene.groups.claim("m0").node
    assert scene.node_of("m0", **fields) == first
    crowded = next(uid for uid in uids[1:] if scene.groups.claim(uid).node == first)
    (other,) = (name for name in scene.names if name != first)
    assert scene.filter(crowded, other, **fields).reason is Reason.GROUP_PLACING
    scene.woken()
    nodes = [scene.groups.claim(uid).node for uid in uids]
    assert (nodes.count(first), nodes.count(other)) == (1, 4)


def test_a_node_that_took_few_members_is_tried_again():
    """A pod without GPUs had its CPU, and ended: each member alone was offered the node before."""
    scene = GroupScene(*(leaf(f"n{i}", "S0") for i in range(2)))
    scene.place("other", group="other")
    (name,) = (one for one in scene.names if one != scene.where("other"))
    fields = {"n_gpus": 2}
    assert claim_all(scene, "a", "b", **fields)["a"] == name
    assert scene.filter("b", scene.where("other"), **fields).reason is Reason.GROUP_PLACING

    def nodes() -> set[str | None]:
        scene.woken()
        return {scene.node_of(uid, **fields) for uid in ("a", "b")}

    scene.pass_s(1.0)
    assert nodes() == {None}
    scene.pass_s(MOST_S - 2.0)
    assert nodes() == {None}
    assert scene.status(KEY).reason is Reason.GROUP_NO_ROOM
    scene.pass_s(1.0)
    assert nodes() == {name}
    assert replay(scene.lines).difference is None


def test_a_group_whose_members_cannot_follow_pauses():
    """Others may have its devices for some seconds."""
    scene = GroupScene()
    claim_all(scene, "a", "b")
    for _ in range(4):
        scene.filter("b", *(name for name in scene.names if name != scene.groups.claim("b").node))
        scene.woken()
    assert n_free(scene) == 16
    reason, detail = scene.status(KEY).reason, scene.status(KEY).detail
    assert reason is Reason.GROUP_NOT_BOUND
    assert detail == "devices were claimed once, and bind was not called for all in time"
