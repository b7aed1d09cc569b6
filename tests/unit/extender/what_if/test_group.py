"""What a simulation says of a group is what filter then does with its members."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.engine.events import PendingUpdated, PodDeleted, PodUpdated
from extender.groups.planning import Near
from extender.protocol import Reason
from extender.state import PRODUCT
from extender.what_if import (
    GroupPlace,
    RequestedGroup,
    RequestedPod,
    SimulatedGroup,
    Simulation,
    add_nodes,
    gather_groups,
    kinds_by_name,
    read_pods,
)
from tests.unit.extender.engines import RULES
from tests.unit.extender.feeds import bare, facts, ids, plan_of, whole
from tests.unit.extender.group_scene import GroupScene, all_bound, claim_all, leaf
from tests.unit.extender.pods import GPU, container, pod

if TYPE_CHECKING:
    from collections.abc import Sequence


def asked(*manifests: Any) -> list[RequestedPod]:
    """A pod of each manifest."""
    return [read_pods(one, 1, (GPU,), where=f"pods.{i}")[0] for i, one in enumerate(manifests)]


def gathered(*manifests: Any) -> RequestedGroup:
    """The one group of these."""
    (group,) = gather_groups(asked(*manifests))
    assert isinstance(group, RequestedGroup)
    return group


def members(scene: GroupScene, *uids: str, **fields: Any) -> RequestedGroup:
    """The group of these members."""
    return gathered(*(scene.manifest(uid, **fields) for uid in uids))


def place(scene: GroupScene, group: RequestedGroup, **changes: Any) -> SimulatedGroup:
    """The end of all turns."""
    turns = simulation(scene, **changes).place_group(group)
    while True:
        try:
            next(turns)
        except StopIteration as end:
            placed: SimulatedGroup = end.value
            return placed


def simulation(scene: GroupScene, **changes: Any) -> Simulation:
    """A simulation on what there is."""
    return Simulation(scene.gateway.cluster.moment(), RULES, **changes)


def occupy(scene: GroupScene, name: str, n_gpus: int = 4) -> None:
    """A pod has the first GPUs of a node."""
    plan = plan_of(name, *ids(name)[:n_gpus])
    scene.gateway.handle(PodUpdated(facts(f"on-{name}", plan)))


def where(placed: SimulatedGroup) -> dict[str, str | None]:
    """The node of each member."""
    return {
        one.pod.full_name: None if one.view is None else one.view.name for one in placed.members
    }


def sets(placed: SimulatedGroup) -> dict[str, set[str]]:
    """The ids of each member."""
    found: dict[str, set[str]] = {}
    for one in placed.members:
        if one.view is not None:
            assert one.fit is not None
            chosen = (gpu for _, selected in one.fit.containers for gpu in selected.gpus)
            found[one.pod.full_name] = {one.view.ids[gpu] for gpu in chosen}
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_group_goes_where_filter_places_it(seed):
    """Nodes and sets of every member, or the reason, on clusters partly full at random."""
    drawn = random.Random(seed)  # noqa: S311 - a test draws it
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 3}") for i in range(9)))
    for name in scene.names:
        if n_gpus := drawn.choice((0, 0, 1, 2, 4)):
            occupy(scene, name, n_gpus)
    n_members, n_gpus = drawn.choice((2, 3, 4, 6)), drawn.choice((1, 2, 4))
    fields: dict[str, Any] = {"size": drawn.choice((2, n_members)), "n_gpus": n_gpus}
    if drawn.random() < 0.5:
        fields |= {"group_domain": "leaf", "group_policy": "required"}
    uids = [f"m{i}" for i in range(n_members)]
    placed = place(scene, members(scene, *uids, **fields))
    claim_all(scene, *uids, **fields)
    status = scene.status()
    if not status.n_claimed:
        assert (placed.place.reason, placed.place.detail) == (status.reason, status.detail)
        assert {*where(placed).values()} == {None}
        return
    if status.n_claimed == n_members:
        assert placed.place.value == status.value
        assert (placed.place.level, placed.place.domain) == (status.level, status.domain)
    for _ in range(8):  # members beyond the size are placed after the others
        scene.pass_s(2.0)
        scene.woken()
    nodes = {one.uid: one.node for one in scene.status().members}
    assert where(placed) == {f"default/pod-{uid}": node for uid, node in nodes.items()}
    records = (scene.gateway.cluster.pods.get(uid) for uid in uids)
    plans = [one.node_plan for one in records if one is not None and one.node_plan is not None]
    assert [*sets(placed).values()] == [{*one.ids} for one in plans]


def test_members_of_several_shapes_are_placed_together():
    """A leader with two containers, and workers by rank."""
    scene = GroupScene()
    leader = scene.manifest("lead", size=3)
    leader["spec"]["containers"] = [container("a", 2), container("b", 1)]
    workers = [scene.manifest(f"w{i}", size=3, n_gpus=2) for i in range(2)]
    group = gathered(leader, *workers)
    placed = place(scene, group)
    assert placed.place.reason is None
    found = sets(placed)
    assert [len(found[f"default/pod-{one}"]) for one in ("lead", "w0", "w1")] == [3, 2, 2]
    assert where(placed)["default/pod-w0"] == where(placed)["default/pod-w1"]
    assert {*where(placed).values()} in ({"n0", "n1"}, {"n2", "n3"})


def test_a_member_sees_what_pods_before_the_group_left():
    """And pods after it what the group left."""
    scene = GroupScene(*(leaf(f"n{i}", "S0") for i in range(3)))
    tried = simulation(scene)
    single = asked(pod(4, uid="s"))[0]
    group = gathered(*(scene.manifest(uid) for uid in ("a", "b")))

    def end(turns: Any) -> Any:
        while True:
            try:
                next(turns)
            except StopIteration as stop:
                return stop.value

    first = end(tried.place(single))
    assert {*where(end(tried.place_group(group))).values()} == {"n0", "n1", "n2"} - {
        first.view.name
    }
    assert end(tried.place(replace(single, full_name="default/t"))).view is None
    assert {name for name, _ in tried.taken} == {"n0", "n1", "n2"}


def test_drained_nodes_take_no_member():
    """The other leaf does."""
    scene = GroupScene()
    assert {*where(place(scene, members(scene, "a", "b"), drained=["n0"])).values()} == {
        "n2",
        "n3",
    }


def test_added_nodes_take_members():
    """They are in no known domain."""
    scene = GroupScene(leaf("n0", "S0"))
    group = members(scene, "a", "b")
    assert place(scene, group).place.reason is Reason.GROUP_NEVER
    kind = next(iter(kinds_by_name(scene.gateway.cluster.moment()).values()))
    added = add_nodes([("m", kind, 1)], scene.gateway.cluster.moment().nodes)
    placed = place(scene, group, added=added)
    assert {*where(placed).values()} == {"n0", added[0].name}
    assert placed.place.level == "any"


def test_members_go_near_those_that_run():
    """Fewer than the size need to be asked for then."""
    scene = GroupScene()
    group = members(scene, "c", size=2)
    assert place(scene, group).place == GroupPlace(
        reason=Reason.GROUP_WAITING, detail="1 of 2 members are here"
    )
    occupy(scene, "n2")
    near = replace(group, near=Near(("n2",)), bound=(plan_of("n2", *ids("n2")),))
    assert where(place(scene, near)) == {"default/pod-c": "n3"}


def test_a_replacement_of_a_group_that_has_begun_waits_for_no_other():
    """Others of it may have ended since; the first place is that of the member of its rank."""
    scene = GroupScene(*(leaf(f"n{i}", f"S{i // 4}") for i in range(8)))
    uids = ("a", "b", "c", "d")
    assert all_bound(scene.place(*uids))
    for uid in ("c", "d"):
        scene.gateway.handle(PodDeleted(uid))
    near = scene.groups.readings.near(("default", "g"))
    assert near is not None
    assert len(near.nodes) == 2
    group = replace(members(scene, "e", size=4), near=near)
    placed = where(place(scene, group))
    assert {"default/pod-e": claim_all(scene, "e", size=4)["e"]} == placed


def test_a_size_that_counts_pods_without_gpus_waits_for_none_of_them():
    """As the size of another project's keys: a launcher has none, and is no member here."""
    labels = {"kueue.x-k8s.io/pod-group-name": "g"}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "3"}
    scene = GroupScene(group_kinds=("kueue",))
    manifests = {uid: pod(None if uid == "launcher" else 4, uid=uid) for uid in ("launcher", *"ab")}
    for uid, one in manifests.items():
        one["metadata"]["labels"] |= labels
        one["metadata"]["annotations"] |= annotations
        seen = whole(uid, None, body=one, phase="Pending", labels=labels, annotations=annotations)
        scene.gateway.handle(PendingUpdated(seen, scene.now_s))
    workers = [manifests[uid] for uid in "ab"]
    simulations = [
        read_pods(one, 1, (GPU,), where="pods", group_kinds=("kueue",))[0] for one in workers
    ]
    (group,) = gather_groups(simulations)
    assert isinstance(group, RequestedGroup)
    placed = where(place(scene, group))
    for one in workers:
        scene.call(one)
    scene.woken()
    named = [json.loads(scene.call(one).body)["NodeNames"] for one in workers]
    assert [*placed.items()] == [("default/pod-a", named[0][0]), ("default/pod-b", named[1][0])]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"size": 3}, Reason.GROUP_DIFFERS),
        ({"group_domain": "leaf"}, Reason.GROUP_DIFFERS),
    ],
)
def test_members_that_state_different_things_get_no_node(second, reason):
    """As they get none from filter."""
    scene = GroupScene()
    manifests = scene.manifest("a"), scene.manifest("b", **second)
    group = gathered(*manifests)
    placed = place(scene, group)
    assert placed.place.reason is reason
    assert placed.place.detail.startswith("pod-a states ")
    assert {one.reason for one in placed.members} == {Reason.GROUP_DIFFERS.value}
    assert [one.n_fit for one in placed.members] == [4, 4]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"min_bandwidth": "1"}, Reason.GROUP_TOO_SLOW),
        ({"group_domain": "rack", "group_policy": "required"}, Reason.GROUP_NEVER),
    ],
)
def test_a_group_that_gets_no_place_says_why(fields, reason):
    """Filter's own reason."""
    scene = GroupScene()
    placed = place(scene, members(scene, "a", "b", **fields))
    claim_all(scene, "a", "b", **fields)
    assert placed.place.reason is reason
    assert (scene.status().reason, scene.status().detail) == (reason, placed.place.detail)
    assert {*where(placed).values()} == {None}


def test_a_selector_keeps_members_off():
    """As far as labels are known."""
    scene = GroupScene(
        *(leaf(f"n{i}", f"S{i // 2}", labels={PRODUCT: "AB"[i // 2]}) for i in range(4))
    )
    manifests = [scene.manifest(uid) for uid in ("a", "b")]
    for one in manifests:
        one["spec"]["nodeSelector"] = {PRODUCT: "B"}
    group = gathered(*manifests)
    assert {*where(place(scene, group)).values()} == {"n2", "n3"}


def test_devices_go_by_count_where_no_topology_is_known():
    """The node is said, and no set."""
    scene = GroupScene(bare("n0", 4), bare("n1", 4))
    placed = place(scene, members(scene, "a", "b"))
    assert {*where(placed).values()} == {"n0", "n1"}
    assert [one.fit for one in placed.members] == [None, None]
    assert placed.place.value is None


def test_groups_are_gathered_at_their_first_member():
    """Others keep their place; a group without a size is no group here."""
    scene = GroupScene()
    manifests: Sequence[Any] = [
        pod(1, uid="first"),
        scene.manifest("a"),
        scene.manifest("x", group="h"),
        pod(1, uid="between"),
        scene.manifest("b"),
        scene.manifest("alone", size=None),
    ]
    units = gather_groups(asked(*manifests))
    names = [one.name if isinstance(one, RequestedGroup) else one.full_name for one in units]
    assert names == [
        "default/pod-first",
        "default/g",
        "default/h",
        "default/pod-between",
        "default/pod-alone",
    ]
