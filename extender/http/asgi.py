"""The ASGI application for kube-scheduler's verbs: a path, a body of bounded size, a handler.

It answers POST on the paths it was given; every other request goes to the other application.
Three such calls are made for each pod, so the verbs skip what a web framework adds to each request
(middlewares, routing, request and response objects); ADR 0011 has the figures.

Every answer carries Content-Length, so that the connection is kept alive.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Handler", "VerbApp", "VerbResponse"]

_FAULT = 500, b'{"error":"internal error"}'
_NOT_POST = (
    405,
    b'{"type":"about:blank","title":"Method Not Allowed","status":405,"detail":"expected POST"}',
)


@dataclass(frozen=True, slots=True)
class VerbResponse:
    """A status and a JSON text."""

    status: int
    body: bytes


Handler: TypeAlias = "Callable[[bytes | None], VerbResponse | Awaitable[VerbResponse]]"
"""A response at once, or one to await; of the body, None where it was larger than the limit."""


class _CallerLeft(Exception):
    """The caller disconnected before all was sent."""


class VerbApp:
    """An ASGI application: `handlers` by path, and the application for everything else.

    `body_limit_bytes` bounds what is kept of a body; the rest of it is read all the same, since
    kube-scheduler reads no answer before it has sent everything.
    """

    def __init__(
        self, handlers: Mapping[str, Handler], other: ASGIApp, *, body_limit_bytes: int
    ) -> None:
        self._handlers = dict(handlers)
        self._other = other
        self._body_limit_bytes = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        handler = self._handlers.get(scope["path"]) if scope["type"] == "http" else None
        if handler is None:
            await self._other(scope, receive, send)
        elif scope["method"] != "POST":
            # For a person, as the read routes answer: problem details (RFC 9457).
            response = VerbResponse(*_NOT_POST)
            await _send(send, response, (b"allow", b"POST"), kind=b"application/problem+json")
        else:
            try:
                body = await self._receive(receive)
            except _CallerLeft:
                return
            await self._answer(handler, body, receive, send)

    async def _answer(
        self, handler: Handler, body: bytes | None, receive: Receive, send: Send
    ) -> None:
        try:
            response = handler(body)
            if not isinstance(response, VerbResponse):
                response = await _watched(response, receive)
        except _CallerLeft:
            return
        except Exception:
            await _send(send, VerbResponse(*_FAULT))
            raise  # the server logs it
        await _send(send, response)

    async def _receive(self, receive: Receive) -> bytes | None:
        """Read a body to its end; None for one that is too large. Raises `_CallerLeft`."""
        chunks: list[bytes] = []
        n_bytes = 0
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                raise _CallerLeft
            chunk: bytes = message.get("body", b"")
            n_bytes += len(chunk)
            if n_bytes <= self._body_limit_bytes:
                chunks.append(chunk)
            else:
                chunks.clear()
            if not message.get("more_body", False):
                return b"".join(chunks) if n_bytes <= self._body_limit_bytes else None


async def _watched(answer: Awaitable[VerbResponse], receive: Receive) -> VerbResponse:
    """The answer; what makes it is cancelled when the caller leaves, and may go on all the same.

    Raises `_CallerLeft` where it does not.
    """
    task = asyncio.ensure_future(answer)
    left = asyncio.ensure_future(receive())  # after the body nothing else comes
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_over = task.done()
        (left if is_over else task).cancel()
    try:
        return await task
    except asyncio.CancelledError:
        if is_over:
            raise
        raise _CallerLeft from None


async def _send(
    send: Send,
    response: VerbResponse,
    *more: tuple[bytes, bytes],
    kind: bytes = b"application/json",
) -> None:
    length = (b"content-length", b"%d" % len(response.body))
    headers = [(b"content-type", kind), length, *more]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
