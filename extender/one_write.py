"""HTTP answers that leave in one piece.

What it answers: nothing; it is uvicorn's own HTTP protocol with another way to the socket. uvicorn
writes the head of an answer and its body one after the other, and each write is a packet of its own
(asyncio and uvloop turn off Nagle's algorithm), which wakes the caller twice. Here what is written
in one turn of the event loop goes out with the last of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["JoinedWrites", "OneWriteProtocol"]


class OneWriteProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=...)`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin on a connection."""
        joined = JoinedWrites(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", joined))


class JoinedWrites:
    """A transport that holds the first write of a turn back for the second, or the turn's end."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: bytes | None = None

    def write(self, data: bytes) -> None:
        """Write soon: with the next piece, and before the next turn of the loop."""
        if self._held is None:
            self._held = data
            self._loop.call_soon(self._flush)
        else:
            self._held += data
            self._flush()

    def close(self) -> None:
        """Write what is held, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        held, self._held = self._held, None
        # The connection may have been lost since: uvloop raises where one writes all the same.
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the transport's own methods
        return getattr(self._transport, name)
