"""Nodes that are reserved for a group that has found no room for long, and whom that keeps out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extender.decision_log.replay import replay
from extender.engine.events import (
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PreemptRequested,
    RequeueDue,
)
from extender.preemption import ReadNodes
from extender.protocol import Answer, Outcome, Reason
from tests.unit.extender.feeds import facts, ids, plan_of
from tests.unit.extender.group_scene import GroupScene, leaf
from tests.unit.extender.pods import pod
from topology.taints import CORDONED

KEY = ("default", "g")
PATIENCE_S = 600.0
STUCK_S = 6 * PATIENCE_S


def patient(*nodes: Any, **rules: Any) -> GroupScene:
    """Two leaves of four nodes, or others; every node has one pod on all GPUs."""
    nodes = nodes or tuple(leaf(f"n{i}", f"S{i // 4}") for i in range(8))
    scene = GroupScene(*nodes, **{"group_patience_s": PATIENCE_S, **rules})
    for name in scene.names:
        occupy(scene, name)
    return scene


def occupy(scene: GroupScene, name: str) -> None:
    """A pod of priority -1 has all GPUs of a node."""
    plan = replace(plan_of(name, *ids(name)), priority=-1)
    scene.gateway.handle(PodSeen(facts(f"on-{name}", plan)))


def free(scene: GroupScene, *names: str) -> None:
    """The pods there end."""
    for name in names:
        scene.gateway.handle(PodGone(f"on-{name}"))


def starve(scene: GroupScene, *uids: str, seconds: float = PATIENCE_S, **fields: Any) -> None:
    """Members come, are tried, and find no room for so long."""
    fields = {"size": len(uids), **fields}
    scene.see(*uids, **fields)
    call_all(scene, *uids, **fields)
    scene.woken()
    scene.pass_s(seconds)
    scene.woken()


def call_all(scene: GroupScene, *uids: str, names: tuple[str, ...] = (), **fields: Any) -> None:
    """kube-scheduler tries the members, on all nodes or on some."""
    for uid in uids:
        scene.filter(uid, *names, **{"size": len(uids), **fields})


def reserved(scene: GroupScene, name: str = "g") -> list[str]:
    """The nodes that are reserved for a group."""
    one = scene.status(("default", name)).reservation
    return [] if one is None else sorted(one.nodes)


def single(scene: GroupScene, priority: int = 0, uid: str = "single", n_gpus: int = 4) -> Any:
    """The answer of filter to a pod without a group."""
    made = pod(n_gpus, uid=uid)
    made["spec"]["priority"] = priority
    return scene.call(made)


def see_with_priority(scene: GroupScene, *uids: str, priority: int, **fields: Any) -> None:
    """Members of a priority come and are tried."""
    for uid in uids:
        made = scene.manifest(uid, **fields)
        made["spec"]["priority"] = priority
        body = json.dumps(made).encode()
        scene.gateway.handle(scene.seen(scene.pending(uid, **fields), body=body))
        scene.call(made)
    scene.woken()


def named(answer: Any) -> list[str]:
    """The nodes that it names."""
    return sorted(json.loads(answer.body)["NodeNames"])


def test_without_patience_nothing_is_reserved():
    """As small pods come and go, a larger group waits."""
    scene = patient(group_patience_s=0.0)
    starve(scene, "a", "b", seconds=1e6)
    free(scene, "n0")
    assert (reserved(scene), named(single(scene))) == ([], ["n0"])


def test_a_group_without_room_keeps_the_nodes_of_one_domain_once_it_has_waited():
    """Twice as many as it needs, in the leaf where most members fit; pods that run there go on."""
    scene = patient()
    starve(scene, "a", "b", seconds=PATIENCE_S - 1.0)
    free(scene, "n3")
    assert (reserved(scene), named(single(scene))) == ([], ["n3"])
    scene.pass_s(1.0)
    scene.woken()
    one = scene.status(KEY).reservation
    assert one is not None
    assert (sorted(one.nodes), one.place, one.since_s) == (
        ["n0", "n1", "n2", "n3"],
        "4 nodes of leaf S0",
        scene.now_s,
    )
    refused = single(scene)
    assert (named(refused), refused.reason) == ([], Reason.NODE_RESERVED)
    said = json.loads(refused.body)["FailedAndUnresolvableNodes"]
    assert {name for name, why in said.items() if why == Reason.NODE_RESERVED.value} == {"n3"}
    free(scene, "n4")
    assert named(single(scene)) == ["n4"]
    assert replay(scene.lines).difference is None


def test_a_group_for_which_filter_is_never_called_keeps_nodes_too():
    """On a full cluster kube-scheduler's own count leaves no node to call the extender with."""
    scene = patient()
    scene.see("a", "b")
    scene.woken()
    assert scene.status(KEY).reason is Reason.GROUP_WAITING
    scene.pass_s(5.0)
    scene.woken()
    status = scene.status(KEY)
    assert (status.reason, status.detail) == (
        Reason.GROUP_NO_ROOM,
        "kube-scheduler offers no node for 2 of 2 members",
    )
    scene.pass_s(PATIENCE_S)
    scene.woken()
    first, second, *_ = reserved(scene)
    free(scene, first, second)
    assert named(single(scene)) == []
    call_all(scene, "a", "b")
    scene.pass_s(1.0)
    assert scene.woken() == ["a", "b"]
    assert sorted(str(scene.node_of(uid)) for uid in "ab") == [first, second]
    assert replay(scene.lines).difference is None


def test_free_nodes_that_no_member_was_tried_on_are_not_kept_for_long():
    """Something else than GPUs excludes all members there."""
    scene = patient()
    scene.see("a", "b")
    scene.woken()
    scene.pass_s(5.0)
    scene.woken()
    scene.pass_s(PATIENCE_S)
    scene.woken()
    first = reserved(scene)
    free(scene, *first)
    for _ in range(14):
        scene.pass_s(5.0)
        scene.woken()
    assert not {*first} & {*reserved(scene)}


def test_a_pod_that_matters_more_does_not_wait_for_one_that_matters_less():
    """The priority of the group is the least of its members."""
    scene = patient()
    starve(scene, "a", "b")
    first, *_ = reserved(scene)
    free(scene, first)
    assert named(single(scene, priority=0)) == []
    assert named(single(scene, priority=1)) == [first]


def test_a_member_of_less_priority_lowers_that_of_the_group():
    """Pods between the two no longer wait for it."""
    scene = patient()
    see_with_priority(scene, "a", "b", priority=5)
    scene.pass_s(PATIENCE_S)
    scene.woken()
    node, *_ = reserved(scene)
    free(scene, node)
    assert named(single(scene, priority=3)) == []
    scene.see("c")
    scene.woken()
    assert len(reserved(scene)) == 4
    assert named(single(scene, priority=3)) == [node]
    assert named(single(scene, priority=0)) == []


def test_the_group_is_placed_where_it_kept_the_nodes_and_they_are_open_again():
    """Members find their nodes free, one after the other; nobody else had them meanwhile."""
    scene = patient()
    starve(scene, "a", "b")
    first, second, *others = reserved(scene)
    free(scene, first)
    scene.pass_s(100.0)
    assert named(single(scene)) == []
    scene.woken()
    free(scene, second)
    call_all(scene, "a", "b")
    scene.pass_s(1.0)
    assert scene.woken() == ["a", "b"]
    nodes = {uid: str(scene.node_of(uid)) for uid in "ab"}
    assert sorted(nodes.values()) == [first, second]
    assert reserved(scene) == [first, second, *others]
    steps = [scene.begin(uid, on) for uid, on in nodes.items()]
    assert all(scene.end(step).outcome is Outcome.OK for step in steps)
    for uid, on in nodes.items():
        scene.gateway.handle(PodSeen(facts(uid, plan_of(on, *ids(on)))))
    assert not scene.groups.reserved.all()
    for uid in "ab":
        scene.gateway.handle(PodGone(uid))
    assert named(single(scene)) == [first, second]
    assert replay(scene.lines).difference is None


def leave(scene: GroupScene) -> None:
    """All members are gone."""
    scene.lose("a", "b")


def lack(scene: GroupScene) -> None:
    """One member is gone."""
    scene.lose("b")


def differ(scene: GroupScene) -> None:
    """A third member states another size."""
    scene.see("c", size=3)


@pytest.mark.parametrize("end", [leave, lack, differ])
def test_nodes_are_released_with_what_they_were_reserved_for(end):
    """And pods that were refused there are woken: kube-scheduler sees no event."""
    scene = patient()
    starve(scene, "a", "b")
    first, *_ = reserved(scene)
    free(scene, first)
    assert single(scene).reason is Reason.NODE_RESERVED
    scene.woken()
    scene.pass_s(5.0)
    assert "single" not in scene.woken()
    end(scene)
    scene.woken()
    scene.pass_s(1.0)
    assert "single" in scene.woken()
    assert named(single(scene)) == [first]
    assert replay(scene.lines).difference is None


def test_a_group_whose_members_are_not_bound_where_they_had_a_place_keeps_nothing():
    """It lacks CPU or a volume: no node would help, and others wait meanwhile."""
    scene = patient()
    starve(scene, "a", "b")
    free(scene, *reserved(scene))
    call_all(scene, "a", "b")
    scene.pass_s(1.0)
    assert scene.woken() == ["a", "b"]
    call_all(scene, "a", "b")
    scene.pass_s(60.0)
    scene.woken()
    assert scene.status(KEY).reason is Reason.GROUP_NOT_BOUND
    assert reserved(scene) == []


def test_groups_keep_different_nodes_and_no_more_than_three_keep_any():
    """Two that kept the same ones would wait for each other; the oldest come first."""
    scene = patient(*(leaf(f"n{i}", f"S{i // 4}") for i in range(16)))
    for number in range(5):
        starve(scene, f"{number}a", f"{number}b", group=f"g{number}", seconds=1.0)
    scene.pass_s(PATIENCE_S)
    for _ in range(6):
        scene.woken()
    found = [reserved(scene, f"g{number}") for number in range(5)]
    assert [len(nodes) for nodes in found] == [4, 4, 4, 0, 0]
    assert len({name for nodes in found for name in nodes}) == 12
    scene.lose("1a", "1b")
    scene.woken()
    assert len(reserved(scene, "g3")) == 4
    assert replay(scene.lines).difference is None


def test_a_group_of_higher_priority_has_its_turn_before_one_that_waits_longer():
    """One group is given nodes in each look."""
    scene = patient()
    starve(scene, "a", "b", group="older", seconds=1.0)
    see_with_priority(scene, "c", "d", priority=5, group="higher")
    scene.pass_s(PATIENCE_S)
    scene.woken()
    assert (len(reserved(scene, "higher")), reserved(scene, "older")) == (4, [])
    scene.woken()
    assert len(reserved(scene, "older")) == 4


def test_a_group_of_higher_priority_gets_what_another_keeps_beyond_its_need():
    """Else the one that came first could keep all nodes of its domain from it for days."""
    scene = patient(*(leaf(f"n{i}", "S0") for i in range(4)))
    starve(scene, "a", "b")
    assert reserved(scene) == scene.names
    see_with_priority(scene, "c", "d", priority=10, group="high")
    scene.pass_s(PATIENCE_S)
    scene.woken()
    assert (len(reserved(scene)), len(reserved(scene, "high"))) == (2, 2)
    assert not {*reserved(scene)} & {*reserved(scene, "high")}
    free(scene, *reserved(scene, "high"))
    assert named(single(scene, priority=5)) == []
    assert replay(scene.lines).difference is None


def test_nodes_that_were_given_up_stay_so_when_the_priority_changes_too():
    """Both in one look: no node is in two reservations."""
    scene = patient(*(leaf(f"n{i}", "S0") for i in range(5)))
    starve(scene, "a", "b", seconds=1.0, n_gpus=1)
    see_with_priority(scene, "c", "d", priority=-1, group="k")
    scene.pass_s(PATIENCE_S)
    scene.woken()
    scene.woken()
    (node,), before = reserved(scene), reserved(scene, "k")
    scene.gateway.handle(NodeGone(node))
    scene.pass_s(5.0)
    scene.lose("d")
    see_with_priority(scene, "e", priority=-2, group="k")
    (node,), after = reserved(scene), reserved(scene, "k")
    assert node in before
    assert sorted([node, *after]) == before


def test_another_group_avoids_what_is_reserved_and_says_so():
    """It is placed once there is room elsewhere, or its turn has come."""
    scene = patient()
    starve(scene, "a", "b")
    kept = reserved(scene)
    starve(scene, "c", group="other", seconds=1.0)
    free(scene, kept[0])
    call_all(scene, "c", group="other")
    scene.pass_s(8.0)
    assert scene.woken() == []
    status = scene.status(("default", "other"))
    assert status.reason is Reason.GROUP_NO_ROOM
    assert status.detail.endswith("nodes that are reserved for other groups: 4")
    scene.lose("a", "b")
    scene.woken()
    scene.pass_s(8.0)
    assert scene.woken() == ["c"]


def test_a_replacement_goes_to_the_node_of_the_dead_member_though_it_is_reserved():
    """Its group runs, and holds GPUs on other nodes for nothing until then."""
    scene = GroupScene(group_patience_s=PATIENCE_S)
    occupy(scene, "n2")
    occupy(scene, "n3")
    scene.place("r1", "r2", group="run")
    starve(scene, "a", "b", "c")
    assert len(reserved(scene)) == 4
    (node,) = {scene.where("r1")} & set(reserved(scene))
    scene.gateway.handle(PodGone("r1"))
    scene.see("r3", group="run")
    scene.filter("r3", group="run")
    scene.pass_s(1.0)
    assert "r3" in scene.woken()
    assert scene.node_of("r3", group="run") == node


def test_where_nothing_comes_free_other_nodes_are_reserved():
    """Pods that never end would keep the group, and all who are refused there, waiting."""
    scene = patient()
    starve(scene, "a", "b")
    first = reserved(scene)
    scene.pass_s(STUCK_S - 1.0)
    scene.woken()
    assert reserved(scene) == first
    scene.pass_s(6.0)
    scene.woken()
    second = reserved(scene)
    assert sorted([*first, *second]) == scene.names


def test_nodes_that_came_free_stay_reserved_when_others_did_not():
    """What was waited for is not given up."""
    scene = patient(*(leaf(f"n{i}", "S0") for i in range(8)))
    starve(scene, "a", "b")
    first, *stuck = reserved(scene)
    free(scene, first)
    call_all(scene, "a", "b")
    for _ in range(int(STUCK_S / 60.0) + 2):
        scene.pass_s(60.0)
        scene.woken()
    assert first in reserved(scene)
    assert not {*stuck} & {*reserved(scene)}


def test_progress_prolongs_the_time():
    """One more member fits: pods there do end."""
    scene = patient()
    starve(scene, "a", "b")
    kept = reserved(scene)
    scene.pass_s(STUCK_S - 100.0)
    free(scene, kept[0])
    call_all(scene, "a", "b")
    scene.woken()
    scene.pass_s(STUCK_S - 100.0)
    scene.woken()
    assert reserved(scene) == kept


def test_a_group_for_which_all_nodes_were_tried_waits_its_patience_again():
    """Others have their turn; then every node counts again."""
    scene = patient()
    starve(scene, "a", "b")
    for _ in range(2):
        assert reserved(scene)
        scene.pass_s(STUCK_S)
        scene.woken()
    assert reserved(scene) == []
    scene.pass_s(PATIENCE_S - 1.0)
    scene.woken()
    assert reserved(scene) == []
    scene.pass_s(1.0)
    scene.woken()
    assert len(reserved(scene)) == 4


def test_nodes_that_are_gone_are_replaced_by_others():
    """One that is left can not hold the group."""
    scene = patient()
    starve(scene, "a", "b")
    first = reserved(scene)
    for name in first[1:]:
        scene.gateway.handle(NodeGone(name))
    scene.pass_s(5.0)
    scene.woken()
    assert sorted([*first, *reserved(scene)]) == scene.names


def test_a_node_that_kube_scheduler_never_names_is_not_kept():
    """It has room, and a taint or its CPU excludes it."""
    scene = patient()
    starve(scene, "a", "b")
    kept = reserved(scene)
    others = tuple(name for name in scene.names if name not in kept)
    free(scene, kept[0])
    for _ in range(13):
        call_all(scene, "a", "b", names=others)
        scene.pass_s(5.0)
        scene.woken()
    assert reserved(scene) == list(others)


def test_a_free_node_that_kube_scheduler_does_not_name_is_not_chosen():
    """A cordoned node is the freest of all."""
    scene = patient()
    free(scene, "n0", "n1")
    scene.see("a", "b", size=2)
    call_all(scene, "a", "b", names=tuple(scene.names[2:]))
    scene.woken()
    scene.pass_s(PATIENCE_S)
    scene.woken()
    assert reserved(scene) == ["n4", "n5", "n6", "n7"]


def test_a_node_that_takes_no_new_pod_is_not_chosen():
    """It is full, so that kube-scheduler does not name it in any case."""
    scene = patient(
        *(leaf(f"n{i}", "S0") for i in range(2)),
        *(leaf(f"n{i}", "S1", kubernetes_taints=(CORDONED,) if i > 3 else ()) for i in range(2, 6)),
    )
    starve(scene, "a", "b", "c")
    assert reserved(scene) == ["n0", "n1", "n2", "n3"]
    assert replay(scene.lines).difference is None


def close_for(scene: GroupScene, seconds: float, *names: str) -> list[str]:
    """Nodes of the first leaf take no new pod for so long; what is reserved then."""
    for name in names:
        scene.gateway.handle(NodeSeen(leaf(name, "S0", kubernetes_taints=(CORDONED,))))
    scene.pass_s(6.0)  # it is looked at
    scene.woken()
    scene.pass_s(seconds - 6.0)
    scene.woken()
    assert replay(scene.lines).difference is None
    return reserved(scene)


def test_nodes_that_are_cordoned_for_a_minute_are_replaced_by_others():
    """The pods that end there leave no room."""
    scene = patient()
    starve(scene, "a", "b")
    assert close_for(scene, 60.0, "n0", "n1", "n2") == ["n0", "n1", "n2", "n3"]
    assert close_for(scene, 12.0) == ["n4", "n5", "n6", "n7"]


def test_a_node_that_is_not_ready_for_some_seconds_stays_reserved():
    """Its kubelet restarts: what came free until then would be lost, and the patience begins."""
    scene = patient(*(leaf(f"n{i}", "S0") for i in range(4)))
    starve(scene, "a", "b", "c", "d")
    free(scene, "n0", "n1", "n2")
    assert named(single(scene)) == []
    assert close_for(scene, 30.0, "n3") == ["n0", "n1", "n2", "n3"]
    scene.gateway.handle(NodeSeen(leaf("n3", "S0")))
    assert close_for(scene, 90.0) == ["n0", "n1", "n2", "n3"]


def test_a_group_that_grows_is_given_more_nodes():
    """What was reserved would not hold it."""
    scene = patient()
    starve(scene, "a", "b", size=2)
    assert len(reserved(scene)) == 4
    scene.see(*"abcde", size=5)
    call_all(scene, *"abcde")
    scene.woken()
    scene.pass_s(5.0)
    scene.woken()
    assert len(reserved(scene)) == 8


def test_members_of_several_sizes_count_as_so_many_of_the_largest():
    """Enough for all of them twice, whatever their order."""
    scene = patient()
    scene.see("a", size=3, n_gpus=4)
    scene.see("b", "c", size=3, n_gpus=2)
    scene.filter("a", size=3, n_gpus=4)
    for uid in "bc":
        scene.filter(uid, size=3, n_gpus=2)
    scene.woken()
    scene.pass_s(PATIENCE_S)
    scene.woken()
    assert len(reserved(scene)) == 6


def test_only_nodes_of_the_required_domain_are_reserved():
    """A member is bound: the others belong in its leaf, where one node is enough."""
    scene = GroupScene(group_patience_s=PATIENCE_S)
    fields: dict[str, Any] = {"size": 2, "group_domain": "leaf", "group_policy": "required"}
    scene.place("a", "b", group_domain="leaf", group_policy="required")
    where = {scene.where(uid) for uid in "ab"}
    scene.gateway.handle(PodGone("b"))
    elsewhere = set(scene.names) - where
    for name in where - {scene.where("a")}:
        occupy(scene, name)
    starve(scene, "c", **fields)
    assert {*reserved(scene)} == where - {scene.where("a")}
    assert [scene.free(name) for name in elsewhere] == [4, 4]


def test_a_group_that_no_domain_holds_keeps_nothing_and_is_looked_at_seldom():
    """With members that may go to one named node each, no node is every member's."""
    scene = patient()
    fields: dict[str, Any] = {"size": 2}
    for uid, name in (("a", "n0"), ("b", "n1")):
        made = scene.manifest(uid, **fields)
        field = {"key": "metadata.name", "operator": "In", "values": [name]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        made["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
        body = json.dumps(made).encode()
        scene.gateway.handle(scene.seen(scene.pending(uid, **fields), body=body))
        scene.call(made, name)
    scene.woken()
    for _ in range(3):
        scene.pass_s(PATIENCE_S)
        scene.woken()
    assert scene.status(KEY).reason is Reason.GROUP_NO_ROOM
    assert reserved(scene) == []
    scene.see("a", "b")
    call_all(scene, "a", "b")
    scene.pass_s(59.0)
    scene.woken()
    assert reserved(scene) == []
    scene.pass_s(1.0)
    scene.woken()
    assert len(reserved(scene)) == 4


def test_no_pod_is_evicted_where_it_could_not_go():
    """kube-scheduler counts GPUs itself, and would evict before filter is called again."""
    scene = patient()
    starve(scene, "a", "b")
    first, *_ = reserved(scene)
    other = next(name for name in scene.names if name not in reserved(scene))
    assert preempted(scene, first, other) == [other]
    assert preempted(scene, first) == Reason.NODE_RESERVED
    assert preempted(scene, first, priority=1) == [first]
    assert preempted(scene, first, nominated=first) == ReadNodes(4, (first,))


def preempted(scene: GroupScene, *names: str, nominated: str = "", priority: int = 0) -> Any:
    """The nodes on which a pod may evict those of priority -1, why not, or what is read first."""
    made = pod(4, uid="late")
    made["spec"]["priority"] = priority
    if nominated:
        made["status"] = {"nominatedNodeName": nominated}
    victims = {name: {"Pods": [{"UID": f"on-{name}"}]} for name in names}
    body = json.dumps({"Pod": made, "NodeNameToMetaVictims": victims}).encode()
    answer = scene.gateway.handle(PreemptRequested(body, scene.now_s))
    if not isinstance(answer, Answer):
        return answer
    return answer.reason or sorted(json.loads(answer.body)["NodeNameToMetaVictims"])


def test_where_a_pod_is_nominated_it_may_go():
    """Pods were evicted for it before the node was reserved."""
    scene = patient()
    starve(scene, "a", "b")
    first, *_ = reserved(scene)
    free(scene, first)
    made = pod(4, uid="single")
    made["status"] = {"nominatedNodeName": first}
    assert named(scene.call(made)) == [first]
    assert single(scene, uid="other").reason is Reason.NODE_RESERVED


def test_pods_near_a_group_without_a_size_are_kept_out_too():
    """They are pods of others."""
    scene = patient()
    starve(scene, "a", "b")
    first, *_ = reserved(scene)
    free(scene, first)
    answer = scene.filter("near", group="loose", size=None)
    assert (named(answer), answer.reason) == ([], Reason.NODE_RESERVED)


def test_a_look_without_any_change_costs_no_line_in_the_log_but_the_groups_own():
    """What is reserved is in the log by what led to it."""
    scene = patient()
    starve(scene, "a", "b")
    n_lines = len(scene.lines)
    scene.gateway.handle(RequeueDue(scene.now_s))
    assert len(scene.lines) == n_lines + 1
