"""An API server that forwards ports of pods by WebSocket, as the real one with a kubelet does.

What a connection carries comes from a server of the test's own. Other routes are given by the test.
The real protocol is tried in `tests/cluster/of_install`; this one refuses and breaks on request.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import yaml
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

__all__ = ["ForwardingServer"]

PROTOCOL = "v4.channel.k8s.io"


class ForwardingServer:
    """Pods' ports lead to `target`, a port of this machine.

    `refuses` is a status, `breaks` a text on the channel of errors. With a `token` others are
    refused with 401.
    """

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self.refuses = 0
        self.breaks = ""
        self.token = ""
        self.forwarded: list[str] = []
        self.url = ""
        self.app = web.Application()
        path = "/api/v1/namespaces/{namespace}/pods/{name}/portforward"
        self.app.router.add_get(path, self._forward)

    def answer(
        self, method: str, path: str, respond: Callable[[web.Request, bytes], web.StreamResponse]
    ) -> None:
        """Answer another route, from the request and its body."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return respond(request, await request.read())

        self.app.router.add_route(method, path, handle)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ForwardingServer]:
        """Serve on a free port of the loopback."""
        runner = web.AppRunner(self.app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def kubeconfig(
        self, folder: Path, *, namespace: str = "", token_file: Path | None = None
    ) -> Path:
        """A kubeconfig of it, with a namespace of its context and a token or its file."""
        user = {"token": "t"} if token_file is None else {"tokenFile": str(token_file)}
        context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "contexts": [{"name": "c", "context": context}],
            "users": [{"name": "u", "user": user}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401, text="refused")
        if self.refuses:
            return web.Response(status=self.refuses, text="refused")
        self.forwarded.append(f"{request.path}?{request.query_string}")
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        number = int(request.query["ports"]).to_bytes(2, "little")
        await socket.send_bytes(b"\0" + number)
        await socket.send_bytes(b"\1" + number)
        if self.breaks:
            await socket.send_bytes(b"\1" + self.breaks.encode())
            await socket.close()
            return socket
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        back = asyncio.create_task(_send_back(socket, reader))
        try:
            async for message in socket:
                writer.write(message.data[1:])
        finally:
            back.cancel()
            writer.transport.abort()
            await asyncio.gather(back, return_exceptions=True)
        return socket


async def _send_back(socket: web.WebSocketResponse, reader: asyncio.StreamReader) -> None:
    while chunk := await reader.read(1 << 16):
        await socket.send_bytes(b"\0" + chunk)
    await socket.close()
