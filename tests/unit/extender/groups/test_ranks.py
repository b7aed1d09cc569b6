"""Ranks stay next to each other: where members are replaced, and where a node comes free."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from extender.decision_log.replay import replay
from extender.engine.events import PodDeleted, PodUpdated
from extender.protocol import Outcome
from tests.unit.extender.feeds import facts, ids, plan_of
from tests.unit.extender.group_scene import GroupScene, as_json
from topology.annotations import PlanGroup

INDEX = "batch.kubernetes.io/job-completion-index"
N = 7
"""Members of two GPUs: four nodes of four GPUs have room for one more."""


class RankedScene(GroupScene):
    """Members have ranks, and are called for with some nodes."""

    def ranked(self, uid, rank, size, n_gpus=2):
        """Its JSON."""
        made = self.manifest(uid, size=size, n_gpus=n_gpus)
        made["metadata"]["labels"] = {INDEX: str(rank)}
        return made

    def come(self, uid, rank, *names, size=N):
        """A member is seen and tried; whether it was named a node."""
        made = self.ranked(uid, rank, size)
        self.gateway.handle(self.seen(self.pending(uid, size=size), body=as_json(made)))
        return self.call(made, *names)

    def bind(self, uid, rank, node, *places):
        """A member has a node, as after a restart."""
        group = PlanGroup("g", (), rank)
        plan = replace(plan_of(node, *ids(node, *places)), group=group)
        self.gateway.handle(PodUpdated(facts(uid, plan)))

    def claimed(self, *uids):
        """The nodes that are claimed for members."""
        return [self.groups.claim(uid).node for uid in uids]


@pytest.fixture
def placed() -> RankedScene:
    """Seven members on n3, n2, n1 and n0, the ranks from the last node to the first."""
    scene = RankedScene()
    for rank in range(N):
        first = 2 * (rank % 2)
        scene.bind(f"m{rank}", rank, f"n{3 - rank // 2}", first, first + 1)
    return scene


def test_members_that_are_replaced_at_once_change_no_places(placed):
    """Nodes in the order of the tree would give each the other's."""
    for uid in ("m2", "m5"):
        placed.gateway.handle(PodDeleted(uid))
    for rank in (2, 5):
        placed.come(f"new{rank}", rank)
    assert placed.woken() == ["new2", "new5"]
    assert placed.claimed("new2", "new5") == ["n2", "n1"]
    assert replay(placed.lines).difference is None


@pytest.mark.parametrize("first", [2, 5])
def test_a_member_that_is_replaced_first_takes_its_own_place(placed, first):
    """There is room where the other one was, too."""
    for uid in ("m2", "m5"):
        placed.gateway.handle(PodDeleted(uid))
    for rank in (first, 7 - first):
        placed.come(f"new{rank}", rank)
        placed.woken()
    assert placed.claimed("new2", "new5") == ["n2", "n1"]


def test_a_node_with_room_for_more_takes_no_member_of_another_node(placed):
    """Two ended there, of which one comes back later."""
    for uid in ("m2", "m3", "m5"):
        placed.gateway.handle(PodDeleted(uid))
    for rank in (3, 5):
        placed.come(f"new{rank}", rank)
    placed.woken()
    assert placed.claimed("new3", "new5") == ["n2", "n1"]


def test_a_member_whose_place_is_taken_is_placed_near_and_others_keep_theirs(placed):
    """A stranger has the first one's devices; n0 has room."""
    for uid in ("m2", "m5"):
        placed.gateway.handle(PodDeleted(uid))
    placed.gateway.handle(PodUpdated(facts("stranger", plan_of("n2", *ids("n2", 0, 1)))))
    for rank in (2, 5):
        placed.come(f"new{rank}", rank)
    placed.woken()
    assert placed.claimed("new2", "new5") == ["n0", "n1"]


def waiting(*taken: str) -> RankedScene:
    """Eight members of two GPUs, which need all four nodes; they are not named these ones."""
    scene = RankedScene()
    for node in taken:
        scene.gateway.handle(PodUpdated(facts(f"x-{node}", plan_of(node, *ids(node)))))
    left = [name for name in scene.names if name not in taken]
    for rank in range(8):
        assert scene.come(f"m{rank}", rank, *left, size=8).outcome is Outcome.REFUSED
    assert scene.woken() == []
    return scene


def test_a_plan_counts_on_a_node_for_all_who_were_left_without_it():
    """kube-scheduler names it for one after the other; the plan is made before the last one."""
    scene = waiting("n1")
    scene.gateway.handle(PodDeleted("x-n1"))
    scene.pass_s(1.0)
    for rank in (5, 0):
        scene.call(scene.ranked(f"m{rank}", rank, 8))
    uids = [f"m{rank}" for rank in range(8)]
    assert sorted(scene.woken()) == uids
    assert scene.claimed(*uids) == ["n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"]
    named = [json.loads(scene.call(scene.ranked(u, u[1], 8)).body)["NodeNames"] for u in uids]
    assert named == [[node] for node in scene.claimed(*uids)]
    assert replay(scene.lines).difference is None


def test_a_member_is_planned_by_its_own_call_once_that_has_come():
    """It has a selector: what others are offered is nothing to it any more."""
    scene = waiting("n1")
    scene.gateway.handle(PodDeleted("x-n1"))
    scene.call(scene.ranked("m0", 0, 8))
    for rank in (1, 2, 3):
        scene.call(scene.ranked(f"m{rank}", rank, 8), "n0", "n2", "n3")
    scene.pass_s(1.0)
    scene.woken()
    uids = [f"m{rank}" for rank in range(8)]
    assert scene.claimed(*uids).count("n1") == 2
    assert "n1" not in scene.claimed("m1", "m2", "m3")
