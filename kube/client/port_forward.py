"""A port of a pod, as an address of this machine: `kubectl port-forward` without kubectl.

Listens on a port of the loopback; each connection there is carried over a WebSocket of its own
to the API server, the kubelet and the pod. Protocol (k8s.io/streaming and kubelet v1.36,
portforward/websocket.go, `v4.channel.k8s.io`): the first byte of a message is its channel, 0 for
data and 1 for errors; the first message of each channel is the port, two bytes, the low one first.

It listens on the loopback only, interprets nothing that it carries, and ends every connection when
it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from kube.client.transport import Request
from kube.errors import KubeError, Unanswered, cut

if TYPE_CHECKING:
    from kube.client.transport import Socket, Transport

__all__ = ["PortForward"]

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK = 64 * 1024
_CONNECT_S = 10.0


class PortForward:
    """A forwarded port, while its `async with` lasts; `fault` is the last connection's error."""

    def __init__(
        self, transport: Transport, *, namespace: str, pod: str, port: int, local_port: int = 0
    ) -> None:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
        self._request = Request(
            "GET", f"{path}/portforward", _CONNECT_S, query={"ports": str(port)}
        )
        self._transport = transport
        self._wanted_port = local_port
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.fault: KubeError | None = None

    async def __aenter__(self) -> Self:
        """Listen, once a first connection was opened.

        Raises `KubeError` where none can be, `OSError` where the local port is in use.
        """
        socket = await self._open()
        await socket.close()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._wanted_port)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def local_port(self) -> int:
        """The port of 127.0.0.1 that is forwarded."""
        if self._server is None:
            return 0
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _open(self) -> Socket:
        return await self._transport.open_socket(self._request, _PROTOCOL)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:  # asyncio starts a task for each connection
            return
        self._connections.add(task)
        try:
            socket = await self._open()
            try:
                await self._carry(socket, reader, writer)
            finally:
                await socket.close()
        except KubeError as error:
            self.fault = error
        except asyncio.CancelledError:
            pass  # by `__aexit__`; asyncio of Python 3.11 would log it as an error
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _carry(
        self, socket: Socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry both ways until either end closes. Raises `KubeError`."""
        there = asyncio.create_task(_send_all(socket, reader))
        back = asyncio.create_task(_receive_all(socket, writer))
        tasks = {there, back}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            if (error := task.exception()) is not None:
                raise error


async def _send_all(socket: Socket, reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):  # the local client left
        while chunk := await reader.read(_CHUNK):
            await socket.send(bytes((_DATA,)) + chunk)


async def _receive_all(socket: Socket, writer: asyncio.StreamWriter) -> None:
    begun: set[int] = set()
    async for message in socket.messages():
        channel, content = message[0] if message else _DATA, message[1:]
        if channel not in begun:
            begun.add(channel)  # the first message of a channel is the port
        elif channel == _ERROR:
            raise Unanswered(0, "PortForward", cut(content.decode(errors="replace")))
        else:
            with contextlib.suppress(ConnectionError):
                writer.write(content)
                await writer.drain()
