"""Members on nodes whose kubelet aligns to NUMA nodes: planned and written in one order."""

from __future__ import annotations

from dataclasses import replace

from extender.bind import HoldBind, WriteBinding
from extender.decision_log.replay import replay
from extender.engine.events import BindHeld, PodDeleted, PodUpdated
from tests.unit.extender.feeds import facts, plan_of, report
from tests.unit.extender.group_scene import GroupScene, all_bound
from tests.unit.extender.live_world import node_facts
from topology.annotations import TopologyManagerPolicy, TopologyManagerScope, decode_plan
from topology.model import names

NODE = "big"


def aligned() -> GroupScene:
    """One DGX-1 with single-numa-node: GPUs 0..3 on NUMA node 0, the others on 1."""
    text = report(
        policy=TopologyManagerPolicy.SINGLE_NUMA_NODE, scope=TopologyManagerScope.CONTAINER
    )
    return GroupScene(replace(node_facts(NODE), devices=text))


def claimed(scene: GroupScene) -> list[str]:
    """Three members of two GPUs, with claims, in the order of their plans."""
    scene.see("a", "b", "c", size=3, n_gpus=2)
    for uid in "abc":
        scene.filter(uid, size=3, n_gpus=2)
    scene.woken()
    assert [scene.node_of(uid, size=3, n_gpus=2) for uid in "abc"] == [NODE] * 3
    return ["a", "b", "c"]


def test_binds_wait_for_those_that_were_planned_before_them():
    """The kubelet confines each by what those before it have left."""
    scene = aligned()
    uids = claimed(scene)
    holds = {uid: scene.begin(uid, NODE) for uid in reversed(uids)}
    assert all(isinstance(one, HoldBind) for one in holds.values())
    ids: list[set[str]] = []
    for i, uid in enumerate(uids):
        assert [scene.groups.releases.is_held(one) for one in uids[i:]] == [False] + [True] * (
            2 - i
        )
        write = scene.gateway.handle(BindHeld(holds[uid], scene.now_s))
        assert isinstance(write, WriteBinding)
        plan = decode_plan(write.annotations[names.PLAN])
        assert plan.group is not None
        ids.append(set(plan.ids))
        assert all_bound([scene.end(write)])
    assert len(set.union(*ids)) == 6
    assert replay(scene.lines).difference is None


def test_what_a_member_gets_is_chosen_when_it_is_bound():
    """A pod that ended since the claim turns the kubelet to the other NUMA node."""
    scene = aligned()
    scene.gateway.handle(PodUpdated(facts("x", plan_of(NODE, f"{NODE}-0"))))
    scene.see("a", size=1)
    scene.filter("a", size=1)
    scene.woken()
    assert scene.groups.claim("a").ids == tuple(f"{NODE}-{i}" for i in range(4, 8))
    scene.gateway.handle(PodDeleted("x"))
    hold = scene.begin("a", str(scene.node_of("a", size=1)))
    write = scene.gateway.handle(BindHeld(hold, scene.now_s))
    assert isinstance(write, WriteBinding)
    plan = decode_plan(write.annotations[names.PLAN])
    assert plan.ids == tuple(f"{NODE}-{i}" for i in range(4))
    assert plan.group is not None
    assert all_bound([scene.end(write)])
