"""Pods without a group fill one network domain after the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extender.decision_log.replay import replay
from extender.engine.events import NodeUpdated, VerbCalled
from extender.protocol import Verb
from extender.what_if import Simulation, add_nodes, kinds_by_name, name_pods, read_pods
from tests.unit.extender.engines import answer_of, bind, engine, names
from tests.unit.extender.group_scene import LEAF, GroupScene, leaf
from tests.unit.extender.pods import GPU, args, pod
from topology.taints import CORDONED

SPREAD = {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}
ZONE = "topology.kubernetes.io/zone"
A = {f"a-{i}" for i in range(4)}
B = {f"b-{i}" for i in range(4)}


def rows(*leaves: str, **more: Any) -> list[dict[str, Any]]:
    """Four nodes below each leaf switch; those of `tainted` with a soft taint."""
    tainted = more.pop("tainted", "")
    return [
        {
            "count": 4,
            "machine": "dgx-h100",
            "name": name,
            "zone": "zone-a",
            "prefer_no_schedule": name == tainted,
            "labels": {LEAF: name} if name != "lone" else {},
        }
        for name in leaves
    ]


def two_leaves(*, tainted: str = "", **rules: Any) -> Any:
    """Two leaves; one pod has a whole node of the second one."""
    one = engine(*rows("a", "b", tainted=tainted), **rules)
    bind(one, "first", "b-2", 8)
    return one


def best(one: Any, content: Any) -> set[str]:
    """The nodes with the highest score."""
    scored = answer_of(one, Verb.PRIORITIZE, args(content, names(one)))
    top = max(entry["Score"] for entry in scored)
    return {entry["Host"] for entry in scored if entry["Score"] == top}


def test_a_pod_without_gpus_is_explained():
    """No size of it divides what is free."""
    explained = answer_of(two_leaves(), Verb.EXPLAIN, json.dumps(pod(None)).encode())
    assert (explained["request"], explained["nodes"]) == (None, [])


@pytest.mark.parametrize("n_gpus", [8, 4, 1])
def test_a_pod_gets_a_node_of_the_fullest_domain(n_gpus):
    """Filter names no other while there are enough, and prioritize puts them first."""
    one = two_leaves(candidate_limit=3)
    for i in range(5):
        content = pod(n_gpus, uid=f"u{i}")
        named = answer_of(one, Verb.FILTER, args(content, names(one)))["NodeNames"]
        assert set(named) == B - {"b-2"}
        assert best(one, content) == B - {"b-2"}


@pytest.mark.parametrize("labels", [{}, {ZONE: "zone-a"}], ids=["no labels", "zones alone"])
def test_where_the_network_is_not_known_domains_do_not_matter(labels):
    """All nodes are equal then, and equal pods see different ones; a zone is no leaf."""
    one = engine(*({**row, "labels": labels} for row in rows("a", "b")), candidate_limit=3)
    bind(one, "first", "b-2", 8)
    seen = {
        name
        for i in range(9)
        for name in answer_of(one, Verb.FILTER, args(pod(8, uid=f"u{i}"), names(one)))["NodeNames"]
    }
    assert seen & A
    assert best(one, pod(8)) == (A | B) - {"b-2"}


def test_zones_are_not_filled_one_after_the_other():
    """Of leaves with the same room none is preferred for the room in its zone."""
    placed = [{**row, "zone": f"zone-{row['name']}"} for row in rows("a", "b", "c")]
    placed[2] |= {"zone": "zone-a"}
    one = engine(*placed)
    assert best(one, pod(8)) == A | B | {f"c-{i}" for i in range(4)}


def test_economy_comes_first():
    """A node with a gap is taken before a whole one in a fuller domain."""
    one = two_leaves()
    bind(one, "half", "a-0", 4)
    assert best(one, pod(4)) == {"a-0"}


def test_it_does_not_outvote_what_the_pod_prefers():
    """Its soft wishes are for kube-scheduler to score."""
    content = pod(8)
    content["spec"] |= SPREAD
    assert best(two_leaves(), content) == (A | B) - {"b-2"}


def test_it_does_not_outvote_a_soft_taint():
    """The cluster autoscaler may be about to remove such a node."""
    assert best(two_leaves(tainted="b"), pod(8)) == A


@pytest.mark.parametrize("size", [{}, {"group_size": "1"}])
def test_members_of_groups_are_placed_as_groups(size):
    """Their own rule says where, and economy orders what it leaves."""
    assert best(two_leaves(), pod(8, group="g", **size)) == (A | B) - {"b-2"}


def test_nodes_without_a_domain_come_last():
    """Nothing is known to be near them."""
    one = engine(*rows("a", "lone"))
    bind(one, "first", "lone-0", 8)
    assert best(one, pod(8)) == A


def test_explain_shows_the_same_order():
    """It says what filter and prioritize would answer."""
    one = two_leaves()
    nodes = answer_of(one, Verb.EXPLAIN, json.dumps(pod(8)).encode())["nodes"]
    assert [node["node"] for node in nodes] == ["b-0", "b-1", "b-3", *sorted(A), "b-2"]
    assert [node.get("score") for node in nodes] == [10] * 3 + [9] * 4 + [None]


def placed(one: Any, n_pods: int) -> list[str]:
    """Where a what-if puts pods of a whole node, with two nodes added."""
    cluster = one.cluster
    machines = kinds_by_name(cluster.moment())
    added = add_nodes([("dgx-h100", next(iter(machines.values())), 2)], set(names(one)))
    simulation = Simulation(cluster.moment(), one.rules, added=added)
    asked = read_pods(pod(8), n_pods, (GPU,), where="pods.0")
    nodes: list[str] = []
    for each in name_pods(*asked):
        turns = simulation.place(each)
        while True:
            try:
                next(turns)
            except StopIteration as end:
                nodes.append(end.value.view.name)
                break
    return nodes


def test_a_what_if_fills_one_domain_after_the_other():
    """Added nodes, whose domain is not known, come last."""
    nodes = placed(two_leaves(candidate_limit=3), 9)
    assert set(nodes[:3]) == B - {"b-2"}
    assert set(nodes[3:7]) == A
    assert all(name.startswith("added") for name in nodes[7:])


def test_a_replay_gives_the_same_answers():
    """The domains are in the log, with the nodes."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 5}") for i in range(8)), candidate_limit=2)
    for i in range(6):
        content = args(pod(4, uid=f"u{i}"), scene.names)
        scene.gateway.handle(VerbCalled(Verb.FILTER, content, scene.now_s))
        scene.gateway.handle(VerbCalled(Verb.PRIORITIZE, content, scene.now_s))
    assert replay(scene.lines).difference is None


def test_a_drained_leaf_does_not_count_as_empty():
    """Its cordoned nodes have all their GPUs free, and no pod may go there."""
    drained = [leaf(f"a{i}", "A", kubernetes_taints=(CORDONED,)) for i in (1, 2, 3)]
    scene = GroupScene(leaf("a0", "A"), *drained, leaf("b0", "B"), leaf("b1", "B"))
    offered = ["a0", "b0", "b1"]

    def best_of_them() -> list[str]:
        call = VerbCalled(Verb.PRIORITIZE, args(pod(1), offered), scene.now_s)
        scores = json.loads(scene.gateway.handle(call).body)
        top = max(one["Score"] for one in scores)
        return [one["Host"] for one in scores if one["Score"] == top]

    assert best_of_them() == ["a0"]
    for i in (1, 2, 3):
        scene.gateway.handle(NodeUpdated(leaf(f"a{i}", "A")))
    assert best_of_them() == ["b0", "b1"]
    assert replay(scene.lines).difference is None
