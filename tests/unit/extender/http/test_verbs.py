"""The verbs' routes: bodies of any length, and callers that leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from starlette.routing import Router

from extender.http.verbs import verb_route
from extender.protocol import Answer, Outcome, Verb

if TYPE_CHECKING:
    from extender.http.verbs import Handler

LIMIT = 10
OK = Answer(Verb.BIND, Outcome.OK, b"{}", 1)


class Answering:
    """An application with one verb."""

    def __init__(self, handle: Handler | None = None) -> None:
        self.calls: list[bytes | None] = []
        route = verb_route("/verb", handle or self._handle, body_limit_bytes=LIMIT)
        self.app = Router([route])

    async def _handle(self, body: bytes | None) -> Answer:
        self.calls.append(body)
        return OK

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
    assert head["status"] == 200
    assert dict(head["headers"]) == {
        b"content-type": b"application/json",
        b"content-length": b"2",
    }
    assert body["body"] == b"{}"


@pytest.mark.parametrize(
    ("sizes", "is_kept"), [((LIMIT,), True), ((LIMIT + 1,), False), ((LIMIT, 1, 5), False)]
)
def test_a_body_over_the_limit_is_read_to_its_end_and_not_kept(sizes, is_kept):
    """The caller reads nothing before it has sent everything."""
    answering = Answering()
    pieces = [piece(b"x" * size, more=i + 1 < len(sizes)) for i, size in enumerate(sizes)]
    assert answering.call(*pieces)
    assert (answering.calls[0] is not None) == is_kept


def test_nothing_is_decided_for_a_caller_that_left():
    """It sent a part of a body."""
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


@pytest.mark.parametrize("goes_on", [True, False])
def test_who_answers_learns_that_the_caller_left(goes_on):
    """And may finish what it does, or not."""
    was_told = []

    async def handle(_body: bytes | None) -> Answer:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            was_told.append(True)
            if not goes_on:
                raise
        return OK

    Answering(handle).call(piece(b"1"), {"type": "http.disconnect"})
    assert was_told == [True]
