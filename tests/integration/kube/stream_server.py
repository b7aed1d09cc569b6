"""A server of byte streams on the loopback that leaves no connection open.

asyncio starts a task for each connection and keeps none of them: one that was accepted just before
the loop ended never begins, so that nothing closes its transport.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["stream_server"]

LIMIT = 1 << 20
"""Longest line, bytes."""


@asynccontextmanager
async def stream_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve each connection by `serve` until the end of the block; gives the port."""
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass  # a client may leave
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server.is_serving():
            connections[asyncio.create_task(run(reader, writer))] = writer
        else:
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=LIMIT, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            writer.transport.abort()
        await server.wait_closed()
