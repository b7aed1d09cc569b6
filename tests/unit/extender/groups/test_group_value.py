"""What a group is worth when it is planned: its rails, and the bandwidth that it requires."""

from __future__ import annotations

from typing import Any

import pytest

from extender.decision_log.replay import replay
from extender.engine.events import PodUpdated
from extender.protocol import Reason
from tests.unit.extender.feeds import facts, plan_of
from tests.unit.extender.group_scene import GroupScene, all_bound, leaf
from tests.unit.extender.live_world import node_facts

KEY = "default", "g"


def scene_of(machine: str, count: int = 2) -> GroupScene:
    """So many nodes of a machine below one leaf switch."""
    made = [node_facts(f"h{i}", machine) for i in range(count)]
    return GroupScene(
        *(
            leaf(
                one.name,
                "S0",
                topology=one.topology,
                allocatable=one.allocatable,
                capacity=one.capacity,
            )
            for one in made
        )
    )


def take(scene: GroupScene, name: str, *positions: int) -> None:
    """Another pod has these GPUs of a node."""
    plan = plan_of(name, *(f"{name}-{i}" for i in positions))
    scene.gateway.handle(PodUpdated(facts(f"on-{name}", plan)))


def planned(scene: GroupScene, *uids: str, **fields: Any) -> None:
    """The members come, are tried, and planned."""
    scene.see(*uids, **fields)
    for uid in uids:
        scene.filter(uid, **fields)
    scene.woken()


def gpus_of(scene: GroupScene, uid: str) -> list[int]:
    """Positions of the devices that are claimed for a member."""
    plan = scene.groups.claim(uid)
    return sorted(int(one.rpartition("-")[2]) for one in plan.ids)


def test_of_equal_sets_members_get_those_with_the_same_nic_positions():
    """A ring stays on its rail: the same position of all nodes is on one leaf switch."""
    scene = scene_of("dgx-h100")
    take(scene, "h0", 1, 4, 5, 6, 7)
    take(scene, "h1", 0, 1, 4, 5, 6, 7)
    planned(scene, "a", "b", n_gpus=2)
    on = {scene.node_of(uid, n_gpus=2): gpus_of(scene, uid) for uid in ("a", "b")}
    assert on == {"h0": [2, 3], "h1": [2, 3]}
    assert replay(scene.lines).difference is None


def test_members_of_one_node_have_no_rail_between_them():
    """They get their sets as single pods do."""
    scene = scene_of("dgx-h100", 1)
    planned(scene, "a", "b")
    assert sorted(gpus_of(scene, "a") + gpus_of(scene, "b")) == list(range(8))


def test_members_of_two_shapes_are_placed_on_rails_too():
    """Whatever the first leave is enough for the others."""
    scene = scene_of("dgx-h100")
    scene.see("a", n_gpus=6)
    scene.see("b", n_gpus=4)
    scene.filter("a", n_gpus=6)
    scene.filter("b", n_gpus=4)
    scene.woken()
    assert {scene.node_of("a", n_gpus=6), scene.node_of("b", n_gpus=4)} == {"h0", "h1"}


@pytest.mark.parametrize("machine", ["dgx-1-v100", None], ids=["no tables of rails", "by count"])
def test_other_machines_place_groups_as_ever(machine):
    """Rails are known where NICs are."""
    scene = GroupScene(*(node_facts(f"h{i}", machine) for i in range(2)))
    assert all_bound(scene.place("a", "b", n_gpus=4))


@pytest.mark.parametrize(
    ("floor", "is_claimed"), [("300", True), ("337", True), ("338", False), ("400", False)]
)
def test_min_bandwidth_applies_to_the_whole_group(floor, is_claimed):
    """Less the stated error of sets over nodes: 469 GB/s are predicted, 337.7 are sure enough."""
    scene = scene_of("dgx-h100")
    planned(scene, "a", "b", n_gpus=8, min_bandwidth=floor)
    group = scene.groups.readings.status(KEY)
    assert bool(group.n_claimed) is is_claimed
    if is_claimed:
        assert group.value.least_gbytes_per_s >= float(floor)
    else:
        assert group.reason is Reason.GROUP_TOO_SLOW
        assert group.detail.startswith("the best place that was found has 337.7 GB/s")
        assert group.detail.endswith(f"at least {floor} are required")


@pytest.mark.parametrize(("floor", "is_claimed"), [("34", True), ("35", False)])
def test_members_of_one_gpu_may_require_a_bandwidth_of_their_group(floor, is_claimed):
    """Alone there is nothing to reduce, over two nodes one NIC each carries the ring."""
    scene = scene_of("dgx-h100")
    for name in ("h0", "h1"):
        take(scene, name, *range(1, 8))
    planned(scene, "a", "b", n_gpus=1, min_bandwidth=floor)
    group = scene.groups.readings.status(KEY)
    assert bool(group.n_claimed) is is_claimed


def test_a_value_that_is_unknown_is_not_enough():
    """No NIC's rate is known, so two nodes may be joined by anything."""
    scene = scene_of("dgx-1-v100")
    planned(scene, "a", "b", n_gpus=8, min_bandwidth="50")
    group = scene.groups.readings.status(KEY)
    assert group.reason is Reason.GROUP_TOO_SLOW
    assert group.detail.startswith("at least 50 GB/s are required, and ")
    assert "NIC" in group.detail


def test_a_group_on_one_node_is_worth_what_its_gpus_are():
    """No network is between them."""
    scene = scene_of("dgx-h100")
    planned(scene, "a", "b", n_gpus=4, min_bandwidth="300")
    group = scene.groups.readings.status(KEY)
    assert (group.n_claimed, group.level) == (2, "node")
    assert group.value.gbytes_per_s > 400
