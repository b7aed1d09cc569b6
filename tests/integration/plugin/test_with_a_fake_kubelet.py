"""The plugin's gRPC as a whole beside a fake kubelet, in this process and in one that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from plugin.deviceplugin import (
    DevicePluginCall,
    ListedDevice,
    Registration,
    ResourceServer,
)
from plugin.deviceplugin.registration import RegistrationTiming
from plugin.kubelet import PodResources
from plugin.kubelet.pod_resources import PodResourcesTiming
from plugin.pods import NodePod, PodContainer
from tests.fake_kubelet import FakeKubelet
from tests.unit.plugin.offers import GPU, Obliging, ids, offer
from topology.select import ContainerRole

QUICK = RegistrationTiming(check_every_s=0.01, first_delay_s=0.02, cap_delay_s=0.2, settle_s=0.01)


@pytest.fixture
def root(tmp_path_factory):
    """A folder with a path short enough for unix sockets in it: 107 bytes at most (unix(7))."""
    return tmp_path_factory.mktemp("k")


def pod(name, *sizes, roles=()):
    """A pod whose containers request so many GPUs each."""
    containers = tuple(
        PodContainer(f"c{i}", roles[i] if i < len(roles) else ContainerRole.APP, {GPU: size})
        for i, size in enumerate(sizes)
    )
    return NodePod(
        name, "ns", name, "Pending", is_started=False, annotations={}, containers=containers
    )


class Node:
    """A fake kubelet and a plugin that is registered with it."""

    def __init__(self, root, allocator=None, *, n=8, server=None, **kubelet):
        self.kubelet = FakeKubelet(root, **kubelet)
        self.allocator = allocator or Obliging()
        self.offer = offer(n, allocator=self.allocator)
        self.n = n
        self.calls: list[DevicePluginCall] = []
        self.server = ResourceServer(
            self.offer,
            self.kubelet.folder,
            on_call=self.calls.append,
            **{"deadline_s": 1.0, **(server or {})},
        )
        self.registration = Registration(
            [self.server], self.kubelet.socket, on_change=lambda _: None, timing=QUICK
        )
        timing = PodResourcesTiming(deadline_s=60.0)
        self.resources = PodResources(self.kubelet.pod_resources, timing=timing)
        self.task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self):
        """Registered, with all devices listed."""
        await self.kubelet.start()
        self.begin()
        try:
            await self.kubelet.until_listed(GPU, self.n)
            yield self
        finally:
            await self.end()
            await self.kubelet.stop()

    def begin(self):
        """Start the plugin."""
        self.task = asyncio.create_task(self.registration.run())

    async def end(self):
        """End the plugin in order."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def held(self):
        """What PodResources reports: ids by pod and container."""
        found = await self.resources.read()
        return {(one.name, one.container): set(one.ids) for one in found.holdings}


def test_a_hint_of_the_topology_manager_confines_the_choice(root):
    """With NUMA nodes reported, the kubelet calls only where its hint leaves a choice."""
    devices = [ListedDevice(id_, numa_node=i // 4) for i, id_ in enumerate(ids(8))]

    async def go():
        node = Node(root, affinity=lambda *_: {1})
        node.offer.device_list.replace(devices)
        async with node.running():
            await node.kubelet.admit(pod("a", 2))
            assert node.allocator.requests[0] == (ids(8)[4:], (), 2)
            # Both that are left in the hint are taken without a call, and one outside is requested.
            got = await node.kubelet.admit(pod("b", 3))
            requests = node.allocator.requests[2]
            assert requests == (
                ("GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-6", "GPU-7"),
                ids(8)[6:],
                3,
            )
            assert got["c0"][GPU] == {"GPU-6", "GPU-7", "GPU-0"}
            held = {one.ids for one in (await node.resources.read()).holdings}
            assert held == {("GPU-4", "GPU-5"), ("GPU-0", "GPU-6", "GPU-7")}

    asyncio.run(go())


def test_a_terminated_plugin_finishes_the_pod_under_admission(root):
    """All its containers' questions are answered; a pod that loses its plugin fails for good."""
    times = {"deadline_s": 10.0, "follows_within_s": 2.0}
    released = asyncio.Event()

    async def work():
        await released.wait()
        return ids(2)

    async def go():
        async with Node(root, Obliging(work), server=times).running() as node:
            admission = asyncio.create_task(node.kubelet.admit(pod("a", 2, 3)))
            await node.allocator.asked.until(lambda: node.allocator.requests)
            ending = asyncio.create_task(node.end())
            await asyncio.sleep(0)  # the end has begun, and waits
            released.set()
            await ending
            got = await admission
            assert [len(one[GPU]) for one in got.values()] == [2, 3]
            await node.kubelet.until(lambda: GPU not in node.kubelet.clients)

    asyncio.run(go())


def test_pods_keep_their_devices_over_restarts_of_kubelet_and_plugin(root):
    """Whatever restarts in whichever order, no device gets a second holder."""
    draw = random.Random(5)  # noqa: S311 - a repeatable order of restarts

    async def go():
        async with Node(root).running() as node:
            kubelet = node.kubelet
            for i in range(12):
                size = draw.choice((1, 2))
                free = 8 - sum(len(one) for one in (await node.held()).values())
                if size <= free:
                    await kubelet.admit(pod(f"p{i}", size))
                else:
                    kubelet.end(draw.choice(sorted(kubelet.pods)))
                held = [id_ for one in (await node.held()).values() for id_ in one]
                assert len(held) == len(set(held))
                kubelet.log.clear()
                if draw.random() < 0.5:
                    await node.end()
                    node.begin()
                else:
                    await (kubelet.kill() if draw.random() < 0.5 else kubelet.stop())
                    await kubelet.start()
                await kubelet.until(lambda: f"listed {GPU}" in kubelet.log)
                after = [id_ for one in (await node.held()).values() for id_ in one]
                assert sorted(after) == sorted(held)

    asyncio.run(go())
