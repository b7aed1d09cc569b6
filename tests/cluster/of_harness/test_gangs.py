"""The stand-in's gangs: members end together, and wait for what takes a deleted one's place."""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.fleet.gangs import Gangs
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster


def member(uid, *, group="g"):
    """One of a gang of two."""
    wishes = {"coterie.gpu/group": group, "coterie.gpu/group-size": "2"} if group else {}
    pod = make_pod(uid, 0, annotations=wishes)
    pod["metadata"]["uid"] = uid
    return pod


async def ends(gangs, pod):
    """Whether it may end now."""
    try:
        await asyncio.wait_for(gangs.end(pod), 0.05)
    except TimeoutError:
        return False
    return True


def test_a_member_ends_when_all_of_its_gang_run():
    """And not before; what has ended counts for those that end after it."""
    asyncio.run(_all_of_a_gang())


async def _all_of_a_gang():
    gangs = Gangs()
    a, b, other = member("a"), member("b"), member("c", group="other")
    await gangs.run(a)
    await gangs.run(other)
    assert not await ends(gangs, a)
    ending = asyncio.create_task(gangs.end(a))
    await asyncio.sleep(0)
    await gangs.run(b)
    await asyncio.wait_for(ending, 5)
    gangs.leave(a)
    assert await ends(gangs, b)


def test_a_deleted_member_is_missed():
    """Until another takes its place; once all have ended, pods of their name are another gang."""
    asyncio.run(_a_deleted_member())


async def _a_deleted_member():
    gangs = Gangs()
    a, b = member("a"), member("b")
    await gangs.run(a)
    await gangs.run(b)
    gangs.leave(b)
    assert not await ends(gangs, a)
    await gangs.run(member("replacement"))
    assert await ends(gangs, a)
    assert await ends(gangs, member("replacement"))
    await gangs.run(member("again"))
    assert not await ends(gangs, member("again"))


def test_a_pod_of_no_gang_waits_for_none():
    """It has no other members."""
    asyncio.run(_a_single_pod())


async def _a_single_pod():
    gangs = Gangs()
    await gangs.run(member("single", group=""))
    assert await ends(gangs, member("single", group=""))
