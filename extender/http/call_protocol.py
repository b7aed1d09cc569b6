"""The wire under kube-scheduler's calls: from the parser to a handler and back, in one write.

What it answers: nothing of its own. It is uvicorn's HTTP protocol, which parses, keeps connections
alive, ends them and runs ASGI applications; what is a plain call of `extender.http.asgi` is taken
out before a request becomes an ASGI scope and a task. A handler that needs nobody else answers
while the request's last bytes are being read, and every answer is one write: head and body apart
would wake the caller twice (asyncio and uvloop turn off Nagle's algorithm).

What is not plain goes uvicorn's way, to the same handlers: other paths and methods, requests sent
before the last one was answered (its queue keeps their order), `Expect: 100-continue`, and whoever
sends without reading what it is answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from extender.http.asgi import Body, Call, Calls, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from extender.http.asgi import Handler

__all__ = ["CallProtocol"]

_TYPE_AND_LENGTH = b"content-type: application/json\r\ncontent-length: "
_FAULT = Reply(500, b'{"error":"internal error"}')


class CallProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=...)`, over an application that is a `Calls`; others run as ever."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **kwargs)
        app: object = cast("Any", self.config).loaded_app
        self._calls = app if isinstance(app, Calls) else None

    # What the parser tells.

    def on_headers_complete(self) -> None:
        """Begin on a request: a plain call here, everything else with uvicorn."""
        cycle = self._plain_call()
        if cycle is None:
            super().on_headers_complete()
        else:
            # In the place of uvicorn's own: it asks that one when it ends connections and queues.
            self.cycle = cycle  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        cycle = self.cycle
        if isinstance(cycle, _CallCycle):
            cycle.received.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Answer a plain call, or begin to."""
        cycle = self.cycle
        if not isinstance(cycle, _CallCycle):
            super().on_message_complete()
            return
        try:
            said = cycle.handler(Call(cycle.received.whole, tuple(self.headers)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets an answer
            self._fail(cycle, error)
            return
        if isinstance(said, Reply):
            self._answer(cycle, said)
        else:
            task = self.loop.create_task(self._await(cycle, said))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    # Inside.

    def _plain_call(self) -> _CallCycle | None:
        """The request whose head was read, if it is a plain call."""
        if self._calls is None or self.flow.write_paused or self.expect_100_continue:
            return None
        is_answered: bool = getattr(self.cycle, "response_complete", True)
        parser: Any = self.parser
        if not is_answered or parser.get_method() != b"POST" or parser.should_upgrade():
            return None
        handler = self._calls.handler_at(self.url)
        if handler is None:
            return None
        keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        return _CallCycle(handler, Body(self._calls.body_limit_bytes), keep_alive=keep_alive)

    async def _await(self, cycle: _CallCycle, said: Awaitable[Reply]) -> None:
        try:
            reply = await said
        except BaseException as error:
            self._fail(cycle, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._answer(cycle, reply)

    def _fail(self, cycle: _CallCycle, error: BaseException) -> None:
        self.logger.error("Exception in a handler", exc_info=error)
        cycle.keep_alive = False
        self._answer(cycle, _FAULT)

    def _answer(self, cycle: _CallCycle, reply: Reply) -> None:
        cycle.response_complete = True
        if not cycle.disconnected and not self.transport.is_closing():
            pieces = [STATUS_LINE[reply.status]]
            for name, value in self.server_state.default_headers:
                pieces += (name, b": ", value, b"\r\n")
            if not cycle.keep_alive:
                pieces.append(b"connection: close\r\n")
            length = b"%d" % len(reply.body)
            pieces += (_TYPE_AND_LENGTH, length, b"\r\n\r\n", reply.body)
            self.transport.write(b"".join(pieces))
            if not cycle.keep_alive:
                self.transport.close()
        self.on_response_complete()


class _CallCycle:
    """One plain call; has what uvicorn's protocol asks of its own `RequestResponseCycle`."""

    __slots__ = (
        "disconnected",
        "handler",
        "keep_alive",
        "message_event",
        "received",
        "response_complete",
    )

    def __init__(self, handler: Handler, received: Body, *, keep_alive: bool) -> None:
        self.handler = handler
        self.received = received
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NOBODY_WAITS


_NOBODY_WAITS = asyncio.Event()
"""uvicorn wakes its own cycles by one each."""
