"""A resource's server: its socket is its own, and calls end before it does."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import grpc.aio
import pytest

from plugin.container import ContainerAccess
from plugin.deviceplugin import DeviceList, Offer, ResourceServer, is_served, socket_names
from plugin.errors import RegistrationError
from plugin.pb import deviceplugin_v1beta1_pb2 as pb
from tests.plugin_client import Client
from tests.unit.plugin.offers import GPU, Obliging, offer, served

ALLOCATE = (
    "Allocate",
    pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-0"])]),
    pb.AllocateResponse,
)


def server(root, one=None, **more):
    """A server whose calls do not matter."""
    return ResourceServer(one or offer(), root, on_call=lambda _: None, **more)


async def answers(path) -> bool:
    """Whether a server answers at a path."""
    client = Client(GPU, path)
    try:
        await client.connect(10.0)
    except ConnectionError:
        return False
    await client.close()
    return True


def files(root):
    """What lies in the folder."""
    return sorted(root.iterdir())


def test_the_socket_is_there_while_it_is_served_and_the_next_one_is_another(root):
    """Kubernetes 1.37 refuses a socket whose last watch it has not seen end, and then for good."""
    paths = []

    async def go():
        one = server(root)
        for _ in range(3):
            async with one.serving() as serving:
                assert files(root) == [serving.path]
                assert await answers(serving.path)
                paths.append(serving.path)
            assert files(root) == []

    asyncio.run(go())
    assert len(set(paths)) == 3
    assert all(path.match(socket_names(GPU)) for path in paths)


@pytest.mark.parametrize("kind", ["socket", "file"])
def test_what_a_killed_plugin_left_is_removed(root, kind):
    """After SIGKILL the old file is still there without a listener; other resources keep theirs."""
    left, others = root / "coterie-nvidia.com_gpu-0a1b.sock", root / "coterie-amd.com_gpu-0a1b.sock"
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(left))
    else:
        left.write_text("")
    others.write_text("")

    async def go():
        async with server(root).serving() as serving:
            assert files(root) == [others, serving.path]

    asyncio.run(go())


def test_a_socket_whose_queue_is_full_is_served(root):
    """A plugin that is busy, or stopped for a moment, must not lose its socket."""
    path = root / "busy.sock"
    with socket.socket(socket.AF_UNIX) as bound, contextlib.ExitStack() as stack:
        bound.bind(str(path))
        assert not is_served(path)
        bound.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(str(path))
        assert is_served(path)
    assert not is_served(path)
    assert not is_served(root / "absent.sock")


@pytest.mark.parametrize("n_steps", range(8))
def test_it_may_be_ended_while_it_starts(root, n_steps):
    """SIGTERM comes whenever it likes; what is half begun is ended too, and leaves nothing."""

    async def serve():
        async with server(root).serving():
            await asyncio.Event().wait()

    async def go():
        serving = asyncio.ensure_future(serve())
        for _ in range(n_steps):
            await asyncio.sleep(0)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(go())
    assert files(root) == []


def test_an_old_plugin_that_ends_leaves_its_successors_socket(root):
    """In an upgrade both may live for a while."""

    async def go():
        async with contextlib.AsyncExitStack() as stack:
            async with server(root).serving() as old:
                new = await stack.enter_async_context(server(root).serving())
                assert files(root) == sorted([old.path, new.path])
                assert await answers(old.path)
            assert files(root) == [new.path]
            assert await answers(new.path)
        assert files(root) == []

    asyncio.run(go())


@pytest.mark.parametrize("folder", ["absent", "x" * 90])
def test_a_socket_that_cannot_be_is_reported(root, folder, capfd):
    """No folder, or a path longer than a socket's may be: object, path and reason are named."""
    if folder != "absent":
        (root / folder).mkdir()

    async def go():
        one = server(root / folder)
        with pytest.raises(RegistrationError) as error:
            async with one.serving():
                pass
        message = str(error.value)
        assert message.startswith(f"{GPU}: cannot serve at {root / folder}/coterie-nvidia.com_gpu-")
        assert message.endswith("that can be written and a path of at most 107 bytes")

    asyncio.run(go())
    capfd.readouterr()


def test_a_call_under_way_is_answered_before_the_end(root):
    """The kubelet hangs up on a plugin whose watch ends; the call's pod would fail for good."""
    released = asyncio.Event()

    async def work():
        await released.wait()
        return (ContainerAccess(env={"NVIDIA_VISIBLE_DEVICES": "late"}),)

    async def go():
        allocator = Obliging(work)
        async with served(root, offer(allocator=allocator)) as service:
            watching = asyncio.create_task(service.client.run(lambda _: None))
            call = asyncio.create_task(service.client.call(*ALLOCATE))
            await allocator.asked.until(lambda: allocator.requests)
            ending = asyncio.create_task(service.end())
            await asyncio.sleep(0)  # the end has begun, and waits
            released.set()
            found = await call
            await ending
            await watching
        assert found.container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"] == "late"
        assert files(root) == []

    asyncio.run(go())


def test_a_call_that_hangs_holds_the_end_up_for_a_bounded_time(root):
    """A plugin that is stopped ends, whatever the deadline of the call is."""
    containers = [pb.ContainerAllocateRequest(devices_ids=["GPU-0"])]
    request = pb.AllocateRequest(container_requests=containers)

    async def go():
        allocator = Obliging(asyncio.Event().wait)
        async with served(root, offer(allocator=allocator), deadline_s=0.2) as service:
            hanging = service.client.call("Allocate", request, pb.AllocateResponse)
            call = asyncio.create_task(hanging)
            await allocator.asked.until(lambda: allocator.requests)
            await asyncio.wait_for(service.end(), 60)
            with pytest.raises(grpc.aio.AioRpcError):
                await call

    asyncio.run(go())


class LeftList(DeviceList):
    """Says when a watch of it ends."""

    def __init__(self):
        super().__init__()
        self.leaves = asyncio.Event()

    async def changed_from(self, seen):
        """The next list."""
        try:
            return await super().changed_from(seen)
        finally:
            self.leaves.set()


def test_the_kubelets_watch_is_known_to_begin_and_to_end(root):
    """The end of the watch is how a plugin learns that the kubelet forgot it."""

    async def go():
        devices, listed = LeftList(), asyncio.Event()
        one = server(root, Offer(GPU, devices, Obliging()))
        async with one.serving() as serving:
            service = serving.service
            kubelet, other = Client(GPU, serving.path), Client(GPU, serving.path)
            for client in (kubelet, other):
                await client.connect(5.0)
            assert not service.began.is_set()
            watching = asyncio.create_task(kubelet.run(lambda _: None))
            await service.began.wait()
            looking = asyncio.create_task(other.run(lambda _: listed.set()))
            await asyncio.wait_for(listed.wait(), 60)
            await other.close()
            await looking
            await asyncio.wait_for(devices.leaves.wait(), 60)
            assert not service.ended.is_set()
            await kubelet.close()
            await asyncio.wait_for(service.ended.wait(), 60)
            await watching

    asyncio.run(go())
