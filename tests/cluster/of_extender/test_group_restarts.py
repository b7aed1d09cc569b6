"""Groups that wait while the extender is killed and started again."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster

FOUR = parse_cluster("4x dgx-h100")


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler."""
    made = start_cast(control_plane)
    yield made
    made.stop()


def member(group, number, size):
    """A pod of a group that takes a node."""
    wishes = {"coterie.gpu/group": group, "coterie.gpu/group-size": str(size)}
    return make_pod(f"{group}-{number}", 8, annotations=wishes)


def names_of(group, size):
    """The names of its pods."""
    return [f"{group}-{number}" for number in range(size)]


def restart(cast):
    """The extender dies without a word, and the kubelet starts it again."""
    cast.extender.kill()
    cast.extender.start()


def test_a_group_that_waits_is_placed_after_a_restart(cast):
    """kube-scheduler has parked three of four; the new extender wakes them when the last comes."""

    async def main():
        async with play(cast, FOUR) as played:
            for number in range(3):
                await played.create(member("late", number, 4))
            for name in names_of("late", 3):
                assert "members are missing" in await played.refused(name)
            await asyncio.to_thread(restart, cast)
            await played.create(member("late", 3, 4))
            await played.bound(*names_of("late", 4))
            plans = [json.loads(played.pod(name).plan or "") for name in names_of("late", 4)]
            assert {plan["group"]["name"] for plan in plans} == {"late"}

    asyncio.run(main())


def test_a_group_without_room_is_placed_after_a_restart(cast):
    """All are there and parked; the room comes free while no extender runs."""

    async def main():
        async with play(cast, FOUR) as played:
            await played.create(make_pod("before", 8))
            await played.bound("before")
            for number in range(4):
                await played.create(member("full", number, 4))
            for name in names_of("full", 4):
                await played.refused(name)
            await asyncio.to_thread(cast.extender.kill)
            await played.delete("before")
            await asyncio.to_thread(cast.extender.start)
            await played.bound(*names_of("full", 4))

    asyncio.run(main())


def test_bound_members_count_after_a_restart(cast):
    """Their plans name the group: one that is made again is placed at once."""

    async def main():
        async with play(cast, FOUR) as played:
            for number in range(3):
                await played.create(member("again", number, 3))
            await played.bound(*names_of("again", 3))
            await asyncio.to_thread(restart, cast)
            await played.delete("again-1")
            await played.create(member("again", 1, 3))
            await played.bound("again-1")

    asyncio.run(main())
