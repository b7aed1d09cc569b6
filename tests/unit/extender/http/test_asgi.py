"""The ASGI application of the verbs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.http.asgi import VerbApp, VerbResponse

LIMIT = 10


class Answering:
    """An application with one path, and another one behind it."""

    def __init__(self) -> None:
        self.calls: list[bytes | None] = []
        self.others: list[str] = []
        self.app = VerbApp({"/verb": self._handle}, self._other, body_limit_bytes=LIMIT)

    async def _handle(self, body: bytes | None) -> VerbResponse:
        self.calls.append(body)
        return VerbResponse(201, b"{}")

    async def _other(self, scope: Any, _receive: Any, _send: Any) -> None:
        self.others.append(scope["type"])

    def call(self, *messages: dict[str, Any], **scope: Any) -> list[dict[str, Any]]:
        """Send one request in these pieces; gives what was answered."""
        whole = {"type": "http", "method": "POST", "path": "/verb", "headers": [], **scope}
        pieces = iter(messages)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            piece = next(pieces, None)
            return piece if piece is not None else await asyncio.Future()  # nothing else comes

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.app(whole, receive, send))
        return sent


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    """A part of a body."""
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_may_come_in_pieces():
    """And the answer says how long it is, so that the connection lives."""
    answering = Answering()
    head, body = answering.call(piece(b"12", more=True), piece(b"345"))
    assert answering.calls == [b"12345"]
    assert head["status"] == 201
    assert dict(head["headers"]) == {
        b"content-type": b"application/json",
        b"content-length": b"2",
    }
    assert body == {"type": "http.response.body", "body": b"{}"}


@pytest.mark.parametrize(
    ("sizes", "is_kept"), [((LIMIT,), True), ((LIMIT + 1,), False), ((LIMIT, 1, 5), False)]
)
def test_a_body_over_the_limit_is_read_to_its_end_and_not_kept(sizes, is_kept):
    """The caller reads nothing before it has sent everything."""
    answering = Answering()
    pieces = [piece(b"x" * size, more=i + 1 < len(sizes)) for i, size in enumerate(sizes)]
    assert answering.call(*pieces)
    assert (answering.calls[0] is not None) == is_kept


def test_a_closed_connection_gets_no_answer():
    """Nor is anything decided for them."""
    answering = Answering()
    assert answering.call(piece(b"1", more=True), {"type": "http.disconnect"}) == []
    assert answering.calls == []


def test_only_post_is_answered():
    """The answer says so."""
    answering = Answering()
    head, _ = answering.call(method="GET")
    assert head["status"] == 405
    assert (b"allow", b"POST") in head["headers"]
    assert answering.calls == []


def test_other_paths_and_protocols_go_to_the_framework():
    """Health, state, metrics."""
    answering = Answering()
    answering.call(path="/readyz")
    answering.call(type="lifespan")
    assert answering.others == ["http", "lifespan"]


def test_a_fault_is_answered_as_json_and_raised():
    """kube-scheduler gets a body in the verb's content type, and the server logs the fault."""

    def fail(_body: bytes | None) -> VerbResponse:
        raise ZeroDivisionError

    answering = Answering()
    answering.app = VerbApp({"/verb": fail}, answering.app, body_limit_bytes=LIMIT)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return piece(b"1")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/verb", "headers": []}
    with pytest.raises(ZeroDivisionError):
        asyncio.run(answering.app(scope, receive, send))
    assert sent[0]["status"] == 500
    assert sent[1]["body"] == b'{"error":"internal error"}'


@pytest.mark.parametrize("goes_on", [True, False])
def test_who_answers_learns_that_the_caller_left(goes_on):
    """And may finish what it does, or not."""
    answering = Answering()
    was_told = []

    async def handle(_body: bytes | None) -> VerbResponse:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            was_told.append(True)
            if not goes_on:
                raise
        return VerbResponse(200, b"{}")

    answering.app = VerbApp({"/verb": handle}, answering.app, body_limit_bytes=LIMIT)
    answering.call(piece(b"1"), {"type": "http.disconnect"})
    assert was_told == [True]
