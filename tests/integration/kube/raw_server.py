"""An API server that says byte for byte what a test wants, and goes silent when it wants.

Each connection serves one request after the other. A test's handler gets the request and returns
the pieces of the answer: bytes are written and flushed one by one, `HANG` keeps the connection open
without a word, `CUT` ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tests.integration.kube.stream_server import stream_server

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable


class End(Enum):
    """How a connection ends beside the ordinary way."""

    HANG = 1
    CUT = 2


HANG, CUT = End.HANG, End.CUT


@dataclass(frozen=True)
class Received:
    """A request as it came; header names are lower case, connections are counted from 1."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


Handler = Any
"""A function of `Received` that returns the pieces, or a coroutine of them."""


class RawServer:
    """A listening server and what it received."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.received: list[Received] = []
        self.url = ""
        self.n_connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.n_connections += 1
        number = self.n_connections
        # What a client leaves in the middle is its right.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                while await self._answer(reader, writer, number):
                    pass
            finally:
                writer.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = {
            name.lower(): value for name, _, value in (one.partition(": ") for one in lines if one)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(method, target, headers, body, connection)
        self.received.append(received)
        pieces: Any = self.handler(received)
        if asyncio.iscoroutine(pieces):
            pieces = await pieces
        for piece in pieces:
            if piece is CUT:
                return False
            if piece is HANG:
                await asyncio.get_running_loop().create_future()
            else:
                writer.write(piece)
                await writer.drain()
        return True


@asynccontextmanager
async def raw_server(
    handler: Callable[[Received], object], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """A server on a free loopback port until the end of the block."""
    server = RawServer(handler)
    async with stream_server(server.serve, tls=tls) as port:
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield server


def answer(
    body: bytes = b"{}", *, status: str = "200 OK", headers: Iterable[str] = ()
) -> list[Any]:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return ["\r\n".join(lines).encode() + body]


def refused(code: int, reason: str, *headers: str) -> list[Any]:
    """A refusal as the API server makes it."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": f"no: {reason}"}
    return answer(json.dumps(status).encode(), status=f"{code} X", headers=headers)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a stream."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
