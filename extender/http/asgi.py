"""The ASGI application for kube-scheduler's verbs: a path, a body of bounded size, a handler.

It answers POST on the paths it was given; every other request goes to the other application.
Three such calls are made for each pod, so the verbs skip what a web framework adds to each request
(middlewares, routing, request and response objects); ADR 0011 has the figures.

Every answer carries Content-Length, so that the connection is kept alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Handler", "VerbApp", "VerbRequest", "VerbResponse"]

_FAULT = 500, b'{"error":"internal error"}'
_NOT_POST = (
    405,
    b'{"type":"about:blank","title":"Method Not Allowed","status":405,"detail":"expected POST"}',
)


@dataclass(frozen=True, slots=True)
class VerbRequest:
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
class VerbResponse:
    """A status and a JSON text."""

    status: int
    body: bytes


Handler: TypeAlias = "Callable[[VerbRequest], VerbResponse | Awaitable[VerbResponse]]"
"""A response at once, or one to await."""


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
            request = await self._receive(scope, receive)
            if request is not None:
                await self._answer(handler, request, send)

    async def _answer(self, handler: Handler, request: VerbRequest, send: Send) -> None:
        try:
            response = handler(request)
            if not isinstance(response, VerbResponse):
                response = await response
        except Exception:
            await _send(send, VerbResponse(*_FAULT))
            raise  # the server logs it
        await _send(send, response)

    async def _receive(self, scope: Scope, receive: Receive) -> VerbRequest | None:
        """Read a request to its end; None where the caller disconnected before."""
        chunks: list[bytes] = []
        n_bytes = 0
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk: bytes = message.get("body", b"")
            n_bytes += len(chunk)
            if n_bytes <= self._body_limit_bytes:
                chunks.append(chunk)
            else:
                chunks.clear()
            if not message.get("more_body", False):
                body = b"".join(chunks) if n_bytes <= self._body_limit_bytes else None
                return VerbRequest(body, tuple(scope["headers"]))


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
