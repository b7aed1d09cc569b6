"""The list of devices: the newest, and when it is another one."""

from __future__ import annotations

import asyncio

from plugin.deviceplugin import DeviceList, ListedDevice

A, B = ListedDevice("a"), ListedDevice("b")


def test_the_list_is_what_was_put_there_last():
    """The kubelet gets the list as it is, healthy or not."""
    device_list = DeviceList([A])
    device_list.replace([B, ListedDevice("a", is_healthy=False)])
    assert device_list.devices == (B, ListedDevice("a", is_healthy=False))
    assert device_list.ids == {"a", "b"}


def test_the_same_again_is_no_change():
    """A message to the kubelet makes it write its checkpoint, so nothing is sent for nothing."""

    async def go():
        device_list = DeviceList([A, B])
        waiting = asyncio.ensure_future(device_list.changed_from((A, B)))
        await asyncio.sleep(0)
        device_list.replace(iter((A, B)))
        await asyncio.sleep(0)
        assert not waiting.done()
        device_list.replace([ListedDevice("a", numa_node=0), B])
        assert await waiting == (ListedDevice("a", numa_node=0), B)

    asyncio.run(go())


def test_whoever_waits_gets_the_newest():
    """A slow reader gets several changes as one, and every reader gets them."""

    async def go():
        device_list = DeviceList([A])
        waiting = [asyncio.create_task(device_list.changed_from((A,))) for _ in range(2)]
        await asyncio.sleep(0)
        device_list.replace([B])
        device_list.replace([A, B])
        assert await asyncio.gather(*waiting) == [(A, B), (A, B)]
        assert await device_list.changed_from((A,)) == (A, B)

    asyncio.run(go())


def test_a_change_that_was_taken_back_is_none():
    """What was seen is what is: there is nothing to send."""

    async def go():
        device_list = DeviceList([A])
        waiting = asyncio.create_task(device_list.changed_from((A,)))
        await asyncio.sleep(0)
        device_list.replace([B])
        device_list.replace([A])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        device_list.replace([])
        assert await waiting == ()

    asyncio.run(go())
