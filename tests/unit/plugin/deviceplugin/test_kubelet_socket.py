"""The kubelet's socket: whether it is there, and whether it is the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from plugin.deviceplugin import KubeletSocket
from tests.unit.plugin.offers import looked_at


def bind(path):
    """A socket's file at the path, in place of what is there."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def tick(probe):
    """Have the file system's clock, which has ticks of some milliseconds, go on to the next."""
    probe.touch()
    last_ns = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == last_ns:
        probe.touch()


@contextlib.asynccontextmanager
async def watched(path):
    """A socket that is looked at often."""
    one = KubeletSocket(path, check_every_s=0.005)
    task = asyncio.create_task(one.watch())
    await asyncio.sleep(0)
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_socket_that_is_there_is_known_at_once(root):
    """A plugin that starts beside a running kubelet has nothing to wait for."""
    path = looked_at(root / "kubelet.sock")
    bind(path)

    async def go():
        async with watched(path) as one:
            socket_id = one.socket_id
            assert socket_id is not None
            assert await one.other_than(None) == socket_id

    asyncio.run(go())


def test_a_socket_that_appears_is_waited_for(root):
    """The kubelet may start after the plugin."""
    path = looked_at(root / "kubelet.sock")

    async def go():
        async with watched(path) as one:
            assert one.socket_id is None
            waiting = [asyncio.create_task(one.other_than(None)) for _ in range(2)]
            await path.again()
            assert not any(task.done() for task in waiting)
            bind(path)
            assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [one.socket_id] * 2

    asyncio.run(go())


def test_each_new_socket_is_another_one(root):
    """File systems give an inode's number out again at once; then the time decides."""
    path = looked_at(root / "kubelet.sock")
    bind(path)

    async def go():
        async with watched(path) as one:
            marks = [await one.other_than(None)]
            for _ in range(20):
                tick(root / "probe")
                bind(path)
                marks.append(await asyncio.wait_for(one.other_than(marks[-1]), 60))
        assert len(set(marks)) == len(marks)

    asyncio.run(go())


@pytest.mark.parametrize("kind", ["folder", "file", "absent folder"])
def test_what_is_no_socket_is_none(root, kind):
    """A mount of a path that does not exist yet makes a folder there."""
    path = looked_at(root / "kubelet.sock")
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("")
    else:
        path = looked_at(root / "absent" / "kubelet.sock")

    async def go():
        async with watched(path) as one:
            await path.again()
            assert one.socket_id is None

    asyncio.run(go())


def test_a_socket_that_is_gone_is_not_another_one(root):
    """A kubelet that ends takes its socket along; only the next one's matters."""
    path = looked_at(root / "kubelet.sock")
    bind(path)

    async def go():
        async with watched(path) as one:
            socket_id = await one.other_than(None)
            waiting = asyncio.create_task(one.other_than(socket_id))
            kept = root / "kept"
            path.rename(kept)
            await path.looks.until(lambda: one.socket_id is None)
            await path.again()
            assert not waiting.done()
            bind(path)
            assert await asyncio.wait_for(waiting, 60) == one.socket_id
            assert os.path.samestat(kept.stat(), kept.stat())

    asyncio.run(go())
