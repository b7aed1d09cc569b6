"""Groups on the real scheduler: all members or none, and nothing evicted for one that waits."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.embedded import parse_cluster
from extender.protocol import Reason
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster

EIGHT = parse_cluster("8x dgx-h100")
MIXED = parse_cluster("3x dgx-h100, 2x dgx-1-v100")
A_WHILE_S = 4.0
"""Long enough for a pod to be placed if it could be."""


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler."""
    made = start_cast(control_plane)
    yield made
    made.stop()


def member(group, number, size, gpus=8, **fields):
    """A pod of a group."""
    wishes = {"coterie.gpu/group": group, "coterie.gpu/group-size": str(size)}
    return make_pod(f"{group}-{number}", gpus, annotations=wishes, **fields)


def is_bound(played, name):
    """Whether etcd has the pod with a node."""
    return played.has(name) and played.pod(name).node is not None


def names_of(group, size):
    """The names of its pods."""
    return [f"{group}-{number}" for number in range(size)]


def test_of_two_groups_that_do_not_fit_together_one_is_whole(cast):
    """Members one by one would end half and half, both stuck for ever."""

    async def main():
        async with play(cast, EIGHT) as played:
            for number in range(6):
                for group in ("a", "b"):
                    await played.api.create(
                        "/api/v1/namespaces/default/pods", member(group, number, 6)
                    )
            await played.until(
                lambda: any(
                    all(is_bound(played, name) for name in names_of(group, 6))
                    for group in ("a", "b")
                )
            )
            await asyncio.sleep(A_WHILE_S)
            bound = {
                group: sum(is_bound(played, name) for name in names_of(group, 6))
                for group in ("a", "b")
            }
            assert sorted(bound.values()) == [0, 6]
            (whole,) = (group for group, count in bound.items() if count)
            other = "b" if whole == "a" else "a"
            await played.delete(*names_of(whole, 6))
            await played.bound(*names_of(other, 6))
            plans = [json.loads(played.pod(name).plan or "") for name in names_of(other, 6)]
            assert {plan["group"]["name"] for plan in plans} == {other}

    asyncio.run(main())


def test_a_group_gets_gpus_of_one_model(cast):
    """The two V100 machines do not hold three members, nor both models together four."""

    async def main():
        async with play(cast, MIXED) as played:
            for number in range(3):
                await played.create(member("one", number, 3))
            await played.bound(*names_of("one", 3))
            nodes = {str(played.pod(name).node) for name in names_of("one", 3)}
            assert nodes == {f"dgx-h100-{number}" for number in range(3)}
            await played.delete(*names_of("one", 3))
            for number in range(4):
                await played.create(member("both", number, 4))
            why = Reason.GROUP_MODEL_NEVER.value
            await played.until(
                lambda: any(why in played.pod(name).message for name in names_of("both", 4)),
                within_s=60.0,
            )
            assert not any(is_bound(played, name) for name in names_of("both", 4))

    asyncio.run(main())


def test_members_wait_for_the_last_one(cast):
    """And are bound soon after it comes."""

    async def main():
        async with play(cast, EIGHT) as played:
            for number in range(7):
                await played.create(member("w", number, 8, gpus=2))
            said = await played.refused("w-0")
            assert "waits for its group: members are missing" in said
            await asyncio.sleep(A_WHILE_S)
            assert not any(is_bound(played, name) for name in names_of("w", 7))
            await played.create(member("w", 7, 8, gpus=2))
            await played.bound(*names_of("w", 8))
            nodes = {played.pod(name).node for name in names_of("w", 8)}
            assert len(nodes) == 2

    asyncio.run(main())


def test_a_replacement_goes_to_the_node_of_the_dead_member(cast):
    """Alone, while the others run; other nodes have room too."""

    async def main():
        async with play(cast, EIGHT) as played:
            for number in range(4):
                await played.create(member("r", number, 4))
            await played.bound(*names_of("r", 4))
            node = played.pod("r-2").node
            await played.delete("r-2")
            await played.has_free(str(node), 8)
            await played.create(member("r", 9, 4))
            await played.bound("r-9")
            assert played.pod("r-9").node == node

    asyncio.run(main())


def test_members_of_a_group_without_a_size_go_near_each_other_without_waiting(cast):
    """Each is bound as it comes; scores alone would spread or pack by what is free."""

    async def main():
        async with play(cast, EIGHT) as played:
            for number in range(4):
                wishes = {"coterie.gpu/group": "near"}
                await played.create(make_pod(f"near-{number}", 2, annotations=wishes))
                await played.bound(f"near-{number}")
            nodes = {played.pod(name).node for name in names_of("near", 4)}
            assert len(nodes) == 1
            plans = [json.loads(played.pod(name).plan or "") for name in names_of("near", 4)]
            assert {plan["group"]["name"] for plan in plans} == {"near"}

    asyncio.run(main())
