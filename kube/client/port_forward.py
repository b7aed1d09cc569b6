"""A port of a pod, as an address of this machine: `kubectl port-forward` without kubectl.

Listens on a port of the loopback; each connection there is carried over a WebSocket of its own
to the API server, the kubelet and the pod. Protocol (k8s.io/streaming and kubelet v1.36,
portforward/websocket.go, `v4.channel.k8s.io`): the first byte of a message is its channel, 0 for
data and 1 for errors; the first message of each channel is the port, two bytes, the low one first.
The protocol has no word for an end that sends no more but still receives: the pod does not see that
a local client has closed its sending side.

The client library (37.0.2) forwards ports in its synchronous half alone, and listens on none.

It listens on the loopback only, interprets nothing that it carries, loses nothing that a pod sent
before it closed, and ends every connection when it is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from kube.client.transport import Request
from kube.errors import KubeError, Unanswered, cut

if TYPE_CHECKING:
    from kube.client.transport import Transport
    from kube.client.web_socket import Socket

__all__ = ["PortForward"]

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK = 64 * 1024
_CONNECT_S = 10.0
PATIENCE_S = 60.0
"""How long a pod may send nothing to a local client that sends no more: one that closed its whole
connection looks the same, and its pod, which does not see that, may never end. And how long a local
client may take for what is left when the pod has ended: what fits into asyncio's buffer, 64 KB."""


class PortForward:
    """A forwarded port, while its `async with` lasts; `fault` is the last connection's error."""

    def __init__(  # noqa: PLR0913 - what is forwarded, and two options
        self,
        transport: Transport,
        *,
        namespace: str,
        pod: str,
        port: int,
        local_port: int = 0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
        self._request = Request(
            "GET", f"{path}/portforward", _CONNECT_S, query={"ports": str(port)}
        )
        self._transport = transport
        self._wanted_port = local_port
        self._patience_s = patience_s
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

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or not self._server.is_serving():  # it came as everything ends
            writer.transport.abort()
            return
        task = asyncio.create_task(self._run(reader, writer))
        self._connections.add(task)
        task.add_done_callback(partial(self._end, writer))

    def _end(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Leave nothing open, also of a connection whose task was cancelled before it began."""
        self._connections.discard(task)
        if not writer.is_closing():
            writer.transport.abort()

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except KubeError as error:
            self.fault = error

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            socket = await self._open()
        except BaseException:
            writer.transport.abort()
            raise
        try:
            await _Connection(socket, reader, writer, self._patience_s).carry()
        finally:
            await socket.close()


class _Connection:
    """A local connection and its WebSocket."""

    def __init__(
        self,
        socket: Socket,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        patience_s: float,
    ) -> None:
        self._socket = socket
        self._reader = reader
        self._writer = writer
        self._patience_s = patience_s
        self._silence = asyncio.timeout(None)
        self._left_s: float | None = None
        self._is_writing = False

    async def carry(self) -> None:
        """Carry both ways until the pod ends or the local client leaves. Raises `KubeError`."""
        there = asyncio.create_task(self._send_all())
        try:
            async with self._silence:
                await self._receive_all()
        except TimeoutError:
            pass  # the local client left, or sends no more and hears no more
        except BaseException:
            self._writer.transport.abort()
            raise
        finally:
            there.cancel()
            (sent,) = await asyncio.gather(there, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await self._flush()
        if isinstance(sent, KubeError):
            raise sent

    async def _send_all(self) -> None:
        """Send what the local client sends; the other way goes on alone then."""
        try:
            while chunk := await self._reader.read(_CHUNK):
                await self._socket.send(bytes((_DATA,)) + chunk)
        except ConnectionError:  # the local client left: what comes back has no reader
            self._limit(0.0)
        except KubeError:  # what the pod sent before the connection ended is still to be read
            self._limit(self._patience_s)
            raise
        else:
            self._limit(self._patience_s)

    async def _receive_all(self) -> None:
        begun: set[int] = set()
        async for message in self._socket.messages():
            channel, content = message[0] if message else _DATA, message[1:]
            if channel not in begun:
                begun.add(channel)  # the first message of a channel is the port
            elif channel == _ERROR:
                raise Unanswered(0, "PortForward", cut(content.decode(errors="replace")))
            else:
                try:
                    await self._write(content)
                except ConnectionError:  # the local client left
                    return

    async def _write(self, content: bytes) -> None:
        """Write to the local client, however long it takes: that is no silence of the pod."""
        self._is_writing = True
        self._limit(self._left_s)
        self._writer.write(content)
        await self._writer.drain()
        self._is_writing = False
        self._limit(self._left_s)

    async def _flush(self) -> None:
        """Let the local client take what is left."""
        self._writer.close()
        try:
            async with asyncio.timeout(self._patience_s):
                await self._writer.wait_closed()
        except ConnectionError:
            pass  # it left
        except BaseException:  # it takes too long, or everything ends
            self._writer.transport.abort()
            raise

    def _limit(self, left_s: float | None) -> None:
        """End `carry` when so long nothing comes from the pod; None: never."""
        self._left_s = left_s
        if left_s is None or self._is_writing:
            self._silence.reschedule(None)
        else:
            self._silence.reschedule(asyncio.get_running_loop().time() + left_s)
