"""The wire under the verbs: plain calls are answered in one write, the rest goes uvicorn's way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from extender.http.asgi import Call, Calls, Reply
from extender.http.call_protocol import CallProtocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.http.asgi import Handler

LIMIT = 10
KEEP_ALIVE_S = 60
BUG = RuntimeError("bug")


class Wire:
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes) -> None:
        """Take a piece."""
        assert not self.is_closed
        self.writes.append(data)

    def close(self) -> None:
        """Take the end."""
        self.is_closed = True

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return self.is_closed

    def pause_reading(self) -> None:
        """Read no more."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """Read on."""
        self.is_paused = False

    def get_extra_info(self, name: str) -> None:
        """Nothing is known of it."""


class Scene:
    """A protocol on a wire, over handlers that note what they are asked."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.others: list[str] = []
        self.may_answer = asyncio.Event()
        handlers: dict[str, Handler] = {
            "/now": self._now,
            "/later": self._later,
            "/bad": _bad,
            "/bad-later": _bad_later,
        }
        app = Calls(handlers, self._other, body_limit_bytes=LIMIT)
        config = uvicorn.Config(
            cast("Any", app),
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today")]
        self.wire = Wire()
        self.protocol = CallProtocol(config, self.state, {}, asyncio.get_running_loop())
        self.protocol.connection_made(cast("asyncio.Transport", self.wire))

    def _now(self, call: Call) -> Reply:
        self.calls.append(call)
        return Reply(200, b"<%s>" % (b"large" if call.body is None else call.body))

    async def _later(self, call: Call) -> Reply:
        self.calls.append(call)
        await self.may_answer.wait()
        return Reply(200, b"later")

    async def _other(self, scope: Any, _receive: Any, send: Any) -> None:
        self.others.append(scope["path"])
        headers = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"other"})

    @property
    def answers(self) -> list[tuple[int, bytes]]:
        """Status and body of all that was answered, in order."""
        found, rest = [], b"".join(self.wire.writes)
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            sizes = [int(one[15:]) for one in lines if one.startswith(b"content-length:")]
            if sizes:
                found.append((int(lines[0].split()[1]), rest[: sizes[0]]))
                rest = rest[sizes[0] :]
        return found


def _bad(_call: Call) -> Reply:
    raise BUG


async def _bad_later(_call: Call) -> Reply:
    raise BUG


def play(act: Callable[[Scene], Awaitable[None]]) -> Scene:
    """Run a scene."""

    async def go() -> Scene:
        scene = Scene()
        await act(scene)
        await settled()
        return scene

    return asyncio.run(go())


async def settled() -> None:
    """Until nobody can go on without time passing."""
    for _ in range(10):
        await asyncio.sleep(0)


def request(
    path: str, body: bytes = b"", *more: str, method: str = "POST", http: str = "1.1"
) -> bytes:
    """A request as Go's client writes it."""
    head = [
        f"{method} {path} HTTP/{http}",
        "Host: here",
        "User-Agent: Go-http-client/1.1",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        *more,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


def test_a_call_is_answered_at_once_and_in_one_write():
    """Before the loop turns; the connection lives, and the next call is answered too."""

    async def act(scene: Scene) -> None:
        scene.protocol.data_received(request("/now", b"1", "X-Y: z"))
        (written,) = scene.wire.writes
        assert written == (
            b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: application/json\r\n"
            b"content-length: 3\r\n\r\n<1>"
        )
        scene.protocol.data_received(request("/now", b"2"))
        assert len(scene.wire.writes) == 2

    scene = play(act)
    assert [call.body for call in scene.calls] == [b"1", b"2"]
    assert scene.calls[0].header("x-y") == "z"
    assert not scene.wire.is_closed
    assert scene.state.total_requests == 2


def test_a_call_may_come_byte_by_byte():
    """Head and body."""

    async def act(scene: Scene) -> None:
        for byte in request("/now", b"123"):
            assert scene.wire.writes == []
            scene.protocol.data_received(bytes([byte]))

    assert play(act).answers == [(200, b"<123>")]


@pytest.mark.parametrize(("size", "said"), [(LIMIT, b"<xxxxxxxxxx>"), (LIMIT + 1, b"<large>")])
def test_a_body_over_the_limit_is_read_to_its_end_and_not_kept(size, said):
    """Who sends reads nothing before it has sent everything."""

    async def act(scene: Scene) -> None:
        whole = request("/now", b"x" * size)
        scene.protocol.data_received(whole[:-4])
        scene.protocol.data_received(whole[-4:])
        scene.protocol.data_received(request("/now"))

    assert play(act).answers == [(200, said), (200, b"<>")]


def test_a_body_in_chunks_is_one_body():
    """Of whoever does not know its length."""

    async def act(scene: Scene) -> None:
        head = b"POST /now HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
        scene.protocol.data_received(head + b"2\r\n12\r\n1\r\n3\r\n0\r\n\r\n")

    assert play(act).answers == [(200, b"<123>")]


def test_a_handler_may_wait():
    """The answer is one write all the same, and nobody else waits for it."""

    async def act(scene: Scene) -> None:
        scene.protocol.data_received(request("/later"))
        await settled()
        assert scene.wire.writes == []
        scene.may_answer.set()

    scene = play(act)
    assert scene.answers == [(200, b"later")]
    assert len(scene.wire.writes) == 1
    assert not scene.state.tasks


@pytest.mark.parametrize("last", ["/now", "/later", "/metrics"])
def test_who_does_not_wait_for_the_answer_gets_them_in_order(last):
    """All in one piece, the first of which takes its time."""

    async def act(scene: Scene) -> None:
        scene.protocol.data_received(request("/later") + request("/now", b"2") + request(last))
        await settled()
        assert scene.wire.writes == []
        scene.may_answer.set()

    said = {"/now": b"<>", "/later": b"later", "/metrics": b"other"}[last]
    assert play(act).answers == [(200, b"later"), (200, b"<2>"), (200, said)]


@pytest.mark.parametrize("path", ["/now", "/later"])
@pytest.mark.parametrize(
    ("more", "http"), [(("Connection: close",), "1.1"), ((), "1.0")], ids=["asked", "old"]
)
def test_a_connection_ends_with_its_last_answer(path, more, http):
    """Which says so."""

    async def act(scene: Scene) -> None:
        scene.may_answer.set()
        scene.protocol.data_received(request(path, b"", *more, http=http))

    scene = play(act)
    assert len(scene.answers) == 1
    assert b"connection: close\r\n" in scene.wire.writes[0]
    assert scene.wire.is_closed


@pytest.mark.parametrize("path", ["/bad", "/bad-later"])
def test_a_fault_of_our_own_is_an_answer_and_an_end(path, caplog):
    """And is in the log."""

    async def act(scene: Scene) -> None:
        scene.protocol.data_received(request(path))

    scene = play(act)
    assert [status for status, _ in scene.answers] == [500]
    assert scene.wire.is_closed
    assert "RuntimeError: bug" in caplog.text


def test_who_hangs_up_gets_no_answer():
    """What is under way goes on: its outcome matters to others."""

    async def act(scene: Scene) -> None:
        scene.protocol.data_received(request("/later"))
        await settled()
        scene.protocol.connection_lost(None)
        scene.may_answer.set()

    scene = play(act)
    assert (len(scene.calls), scene.wire.writes) == (1, [])
    assert not scene.state.connections


def test_at_the_end_what_is_under_way_is_answered():
    """And whoever has nothing under way is sent away."""

    async def act(scene: Scene) -> None:
        scene.protocol.data_received(request("/now"))
        scene.protocol.data_received(request("/later"))
        await settled()
        scene.protocol.shutdown()
        assert not scene.wire.is_closed
        scene.may_answer.set()
        await settled()
        assert scene.wire.is_closed
        idle = Scene()
        idle.protocol.data_received(request("/now"))
        idle.protocol.shutdown()
        assert idle.wire.is_closed

    assert play(act).answers == [(200, b"<>"), (200, b"later")]


def test_a_caller_that_does_not_read_is_not_read():
    """Its answers would pile up."""

    async def act(scene: Scene) -> None:
        scene.protocol.pause_writing()
        scene.protocol.data_received(request("/now", b"1"))
        await settled()
        assert scene.wire.writes == []
        scene.protocol.resume_writing()

    assert play(act).answers == [(200, b"<1>")]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request("/now", method="GET"), 405),
        (request("/metrics"), 200),
        (request("/%6eow"), 200),
        (request("/now", b"1", "Expect: 100-continue"), 200),
        (b"nonsense\r\n\r\n", 400),
    ],
    ids=["method", "path", "spelling", "expect", "nonsense"],
)
def test_what_is_not_plain_goes_uvicorns_way(sent, status):
    """It is answered as ever."""

    async def act(scene: Scene) -> None:
        scene.protocol.data_received(sent)

    assert [one for one, _ in play(act).answers] == [status]


def test_another_application_runs_as_ever():
    """The plain port has no calls."""

    async def act(scene: Scene) -> None:
        config = uvicorn.Config(
            scene._other,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
        )
        protocol = CallProtocol(config, scene.state, {}, asyncio.get_running_loop())
        protocol.connection_made(cast("asyncio.Transport", scene.wire))
        protocol.data_received(request("/now"))
        await settled()

    scene = play(act)
    assert (scene.others, scene.answers) == (["/now"], [(200, b"other")])
