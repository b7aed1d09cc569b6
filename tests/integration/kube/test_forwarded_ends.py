"""What arrives of a forwarded port's connection when one end of it is slower, or gone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from kube.client import PortForward
from kube.errors import Unanswered
from tests.integration.kube.test_port_forward import said


class SendingPod:
    """A transport to a pod that sends so many bytes and closes; `n_sent` are those taken so far."""

    def __init__(self, n_bytes):
        self._n_bytes = n_bytes
        self.n_sent = 0
        self.ended = asyncio.Event()
        self.closed = asyncio.Event()

    async def open_socket(self, _request, _protocol):
        return self

    async def messages(self):
        yield b"\0\0\0"
        while self.n_sent < self._n_bytes:
            size = min(1 << 15, self._n_bytes - self.n_sent)
            self.n_sent += size
            yield b"\0" + b"x" * size
        self.ended.set()

    async def close(self):
        self.closed.set()


class EndedPod(SendingPod):
    """A pod whose connection has ended, and of which nothing was read yet."""

    def __init__(self, n_bytes):
        super().__init__(n_bytes)
        self._tried = asyncio.Event()

    async def messages(self):
        await self._tried.wait()
        async for message in super().messages():
            yield message
            await asyncio.sleep(0)

    async def send(self, _message):
        self._tried.set()
        raise Unanswered(0, "ConnectionLost", "gone")


async def settled(pod):
    """Until the pod has ended, or nothing more is taken of what it sends, once that has begun."""
    before, n_same = 0, 0
    while not pod.ended.is_set() and n_same < 10:
        n_same = n_same + 1 if pod.n_sent == before > 0 else 0
        before = pod.n_sent
        await asyncio.sleep(0.01)  # the kernel, which has no event, takes more for some time
    for _ in range(10):
        await asyncio.sleep(0)


async def read_late(n_bytes, **forward):
    """How many bytes are received by a client that reads when the pod has sent all it could."""
    pod: Any = SendingPod(n_bytes)
    async with PortForward(pod, namespace="ns", pod="p", port=1, **forward) as opened:
        loop = asyncio.get_running_loop()
        pod.closed.clear()  # the forward tried it, before it listened
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            client.settimeout(0)
            await loop.sock_connect(client, ("127.0.0.1", opened.local_port))
            await settled(pod)
            n_sent = pod.n_sent
            if "patience_s" in forward:
                await pod.closed.wait()
            n_received = 0
            with contextlib.suppress(ConnectionError):
                while part := await loop.sock_recv(client, 1 << 16):
                    n_received += len(part)
    assert opened.fault is None
    return n_sent, n_received


def test_what_a_pod_sent_before_it_closed_is_not_lost():
    """A slower reader gets the end too, which only this process has when the pod is gone."""

    async def run():
        n_buffered, n_received = await read_late(50_000_000)
        assert n_received == 50_000_000
        for n_less in (20_000, 40_000, 60_000):
            size = n_buffered - n_less
            _, n_received = await read_late(size)
            assert n_received == size

    asyncio.run(run())


def test_what_a_pod_sent_is_not_lost_with_the_way_to_it():
    """A connection that ended refuses what is sent before all was read that came from it."""

    async def run():
        pod: Any = EndedPod(1 << 20)
        async with PortForward(pod, namespace="ns", pod="p", port=1) as forward:
            assert len(await said(forward.local_port, b"a\n")) == 1 << 20
            assert isinstance(forward.fault, Unanswered)

    asyncio.run(run())


def test_a_client_that_does_not_read_is_dropped():
    """Or each of them would keep a connection for as long as the command runs."""

    async def run():
        n_buffered, _ = await read_late(50_000_000)
        size = n_buffered - 30_000
        n_sent, n_received = await read_late(size, patience_s=0.1)
        assert n_received < n_sent == size

    asyncio.run(run())


def test_a_client_that_leaves_while_the_pod_sends_ends_its_connection():
    """What comes has no reader any more."""

    async def run():
        pod: Any = SendingPod(1 << 40)
        async with PortForward(pod, namespace="ns", pod="p", port=1) as forward:
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
            await reader.readexactly(1 << 20)
            writer.transport.abort()
            await settled(pod)
            n_sent = pod.n_sent
            await settled(pod)
            assert pod.n_sent == n_sent
        assert forward.fault is None

    asyncio.run(run())
