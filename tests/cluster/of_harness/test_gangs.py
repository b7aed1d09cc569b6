"""The stand-in's gangs: members end together, and wait for what takes a deleted one's place."""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.fleet.gangs import Gangs
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster

NOT_YET_S = 0.05
SOON_S = 60


def member(name, *, uid=None, group="g", runs_s=None):
    """One of a gang of two."""
    wishes = {"coterie.gpu/group": group, "coterie.gpu/group-size": "2"} if group else {}
    pod = make_pod(name, 0, annotations=wishes, runs_s=runs_s)
    pod["metadata"] |= {"namespace": "default", "uid": uid or name}
    return pod


async def may_end(gangs, pod):
    """Whether it may end now; then it does."""
    try:
        await asyncio.wait_for(gangs.await_all(pod), NOT_YET_S)
    except TimeoutError:
        return False
    gangs.end(pod)
    return True


def test_a_member_ends_when_all_of_its_gang_run():
    """And not before; what has ended counts for those that end after it."""

    async def main():
        gangs = Gangs()
        a, b = member("a"), member("b")
        await gangs.run(a)
        await gangs.run(member("c", group="other"))
        assert not await may_end(gangs, a)
        waiting = asyncio.create_task(gangs.await_all(a))
        await asyncio.sleep(0)
        await gangs.run(b)
        await asyncio.wait_for(waiting, SOON_S)
        gangs.end(a)
        gangs.leave(a)
        assert await may_end(gangs, b)

    asyncio.run(main())


def test_a_deleted_member_is_missed_until_another_takes_its_place():
    """Also that of the last one that ran, after the others have ended."""

    async def main():
        gangs = Gangs()
        a, b = member("a"), member("b")
        await gangs.run(a)
        await gangs.run(b)
        gangs.leave(b)
        assert not await may_end(gangs, a)
        await gangs.run(member("b", uid="second"))
        assert await may_end(gangs, a)
        gangs.leave(member("b", uid="second"))
        await gangs.run(member("b", uid="third"))
        assert await may_end(gangs, member("b", uid="third"))

    asyncio.run(main())


def test_pods_with_the_names_of_ended_members_are_another_gang():
    """They wait for each other."""

    async def main():
        gangs = Gangs()
        for name in "ab":
            await gangs.run(member(name))
        for name in "ab":
            assert await may_end(gangs, member(name))
        await gangs.run(member("a", uid="again"))
        assert not await may_end(gangs, member("a", uid="again"))

    asyncio.run(main())
