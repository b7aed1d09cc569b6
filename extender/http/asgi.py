"""kube-scheduler's calls on their short way: a path, a body of bounded size, a handler, a reply.

What it answers: POST on the paths it was given, with a body of bounded size; everything else is the
other application's. Three such calls are made for each pod, so what a web framework adds to each
(middlewares, routing, request and response objects) is paid thousands of times a minute. Most come
here without ASGI even (`extender.http.call_protocol`).

Every answer carries Content-Length, so that the connection lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Body", "Call", "Calls", "Handler", "Reply"]

_JSON = (b"content-type", b"application/json")
_NOT_POST = 405, b'{"error":"expected POST"}'


@dataclass(frozen=True, slots=True)
class Call:
    """What was sent. `body` is None where it was larger than the limit.

    `headers` are in the order sent, with names in lower case.
    """

    body: bytes | None
    headers: tuple[tuple[bytes, bytes], ...]

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case; None where there is none."""
        wanted = name.lower().encode("latin-1")
        return next((text.decode("latin-1") for key, text in self.headers if key == wanted), None)


@dataclass(frozen=True, slots=True)
class Reply:
    """What to say: a status and a JSON text."""

    status: int
    body: bytes


class Body:
    """A body that comes in pieces; beyond the limit nothing of it is kept."""

    __slots__ = ("_chunks", "_n_left")

    def __init__(self, limit_bytes: int) -> None:
        self._chunks: list[bytes] = []
        self._n_left = limit_bytes

    @property
    def whole(self) -> bytes | None:
        """All of it; None where it was larger than the limit."""
        return None if self._n_left < 0 else b"".join(self._chunks)

    def take(self, chunk: bytes) -> None:
        """Take the next piece."""
        self._n_left -= len(chunk)
        if self._n_left < 0:
            self._chunks.clear()
        else:
            self._chunks.append(chunk)


Handler: TypeAlias = "Callable[[Call], Reply | Awaitable[Reply]]"
"""A reply at once, or one to wait for."""


class Calls:
    """An ASGI application: `handlers` by path, and the application for everything else.

    `body_limit_bytes` bounds what is kept of a body; the rest of it is read all the same, since
    kube-scheduler reads no answer before it has sent everything.
    """

    def __init__(
        self, handlers: Mapping[str, Handler], other: ASGIApp, *, body_limit_bytes: int
    ) -> None:
        self._handlers = dict(handlers)
        self._other = other
        self.body_limit_bytes = body_limit_bytes

    def handler_at(self, url: bytes) -> Handler | None:
        """Who answers calls on a path, as it was sent; None also for one that is written oddly."""
        return self._handlers.get(url.decode("latin-1"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        handler = self._handlers.get(scope["path"]) if scope["type"] == "http" else None
        if handler is None:
            await self._other(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(send, Reply(*_NOT_POST), (b"allow", b"POST"))
        else:
            call = await self._receive(scope, receive)
            if call is not None:
                said = handler(call)
                await _send(send, said if isinstance(said, Reply) else await said)

    async def _receive(self, scope: Scope, receive: Receive) -> Call | None:
        """Read a request to its end; None where the caller hung up before."""
        body = Body(self.body_limit_bytes)
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body.take(message.get("body", b""))
            if not message.get("more_body", False):
                return Call(body.whole, tuple(scope["headers"]))


async def _send(send: Send, reply: Reply, *more: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(reply.body))
    headers = [_JSON, length, *more]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
