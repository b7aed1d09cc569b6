"""Writes on their short way: what they say, and that they fail as on the client's own."""

from __future__ import annotations

import asyncio
import json

import pytest

from kube.errors import Conflict, KubeError, Unanswered, Unreachable
from kube.transport import MERGE_PATCH, METADATA, Request, Transport
from tests.integration.kube.raw_server import CUT, HANG, answer, chunk, raw_server, refused
from tests.integration.kube.test_transport import connected, write_kubeconfig

GET = Request("GET", "/api", 5.0)
POST = Request("POST", "/api/v1/pods/a%2Fb/binding", 5.0, body={"name": "é", "n": 1})
PATCH = Request(
    "PATCH",
    "/api/v1/nodes/n",
    5.0,
    query={"fieldManager": "a+b c"},
    body={"metadata": {"uid": None}},
    accept=METADATA,
    content_type=MERGE_PATCH,
)
TOKEN = "t"  # noqa: S105 - of a server that takes any
SILENCE_S = 0.2
"""As long as a test waits for nothing to come."""


def run(folder, pieces, call, **user):
    """What the call returned or raised once there is a session, and what the server then heard.

    `pieces` are a write's answer, or a function of the request that returns them.
    """

    def handler(heard):
        if heard.method == "GET":
            return answer()
        return pieces(heard) if callable(pieces) else pieces

    async def both():
        async with connected(folder, handler, **user) as (server, transport):
            await transport.request(GET)
            try:
                said = await call(transport)
            except KubeError as error:
                said = error
            return said, server.heard[1:]

    return asyncio.run(both())


@pytest.mark.parametrize("request_", [POST, PATCH], ids=["POST", "PATCH"])
def test_both_ways_say_the_same(tmp_path, request_):
    """The first request of a session goes the client's way, later writes the short one."""

    async def twice(tmp_path):
        async with connected(tmp_path, lambda _: answer(), token=TOKEN) as (server, transport):
            for _ in range(2):
                assert await transport.request(request_) == b"{}"
            return server.heard

    client, short = asyncio.run(twice(tmp_path))
    assert (short.method, short.target) == (client.method, client.target)
    assert json.loads(short.body) == json.loads(client.body) == request_.body
    lengths = [int(one.headers.pop("content-length")) for one in (client, short)]
    assert lengths == [len(client.body), len(short.body)]
    assert short.headers == client.headers
    assert short.headers["authorization"] == f"Bearer {TOKEN}"


def test_a_url_may_hold_credentials(tmp_path):
    """They are aiohttp's to read, for writes too."""

    async def attempt():
        async with raw_server(lambda _: answer()) as server:
            url = server.url.replace("//", "//user:word@")
            transport = await Transport.connect(write_kubeconfig(tmp_path, url, {}))
            for _ in range(2):
                await transport.request(POST)
            await transport.close()
            return [heard.headers["authorization"] for heard in server.heard]

    assert asyncio.run(attempt()) == ["Basic dXNlcjp3b3Jk"] * 2


def test_a_server_may_live_below_a_path(tmp_path):
    """As behind a proxy of many clusters."""

    async def attempt():
        async with raw_server(lambda _: answer()) as server:
            transport = await Transport.connect(
                write_kubeconfig(tmp_path, f"{server.url}/k8s/c1", {})
            )
            for _ in range(2):
                await transport.request(POST)
            await transport.close()
            return {heard.target for heard in server.heard}

    assert asyncio.run(attempt()) == {f"/k8s/c1{POST.path}"}


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        pytest.param([HANG], "Timeout", id="silent"),
        pytest.param([answer(b"12345")[0][:-2], HANG], "Timeout", id="silent in the body"),
        pytest.param([CUT], "ConnectionLost", id="cut"),
        pytest.param([answer(b"12345")[0][:-2], CUT], "ConnectionLost", id="cut in the body"),
        pytest.param([b"SMTP ready\r\n\r\n"], "ConnectionLost", id="no HTTP at all"),
    ],
)
def test_a_write_without_an_answer_may_have_been_done(tmp_path, pieces, reason):
    """It is told as such, and not sent twice."""
    request = Request("POST", "/api", SILENCE_S, body={})
    error, heard = run(tmp_path, pieces, lambda t: t.request(request))
    assert (type(error), error.reason, len(heard)) == (Unanswered, reason, 1)


@pytest.mark.parametrize(
    ("pieces", "kind", "told"),
    [
        (refused(409, "AlreadyExists"), Conflict, "409 AlreadyExists: no: AlreadyExists"),
        (
            [b"HTTP/1.1 500 Broken\r\nContent-Length: 9\r\n\r\nhalf", CUT],
            KubeError,
            "500 Broken: half",
        ),
        (
            [b"HTTP/1.1 500 Broken\r\nContent-Length: 9\r\n\r\nhalf", HANG],
            KubeError,
            "500 Broken: half",
        ),
        (
            [
                b"HTTP/1.1 500 Broken\r\nTransfer-Encoding: chunked\r\n\r\n",
                chunk(b"x" * 100_000),
                HANG,
            ],
            KubeError,
            "500 Broken: xxx",
        ),
    ],
    ids=["whole", "cut", "silent", "endless"],
)
def test_a_refusal_is_told(tmp_path, pieces, kind, told):
    """With as much of it as came."""
    request = Request("POST", "/api", SILENCE_S, body={})
    error, _ = run(tmp_path, pieces, lambda t: t.request(request))
    assert type(error) is kind
    assert str(error).startswith(told)


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n"], b"", id="none"),
        pytest.param([b"HTTP/1.1 103 Early Hints\r\n\r\n", *answer(b"1")], b"1", id="a hint"),
        pytest.param(
            [
                b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n",
                chunk(b"1"),
                chunk(b"2"),
                b"0\r\n\r\n",
            ],
            b"12",
            id="chunks",
        ),
        pytest.param(answer(b"1", headers=["Connection: close"]), b"1", id="the last"),
    ],
)
def test_answers_may_have_any_form(tmp_path, pieces, body):
    """And the connection is ready for the next, or replaced."""

    async def twice(transport):
        return [await transport.request(POST) for _ in range(2)]

    assert run(tmp_path, pieces, twice)[0] == [body, body]


def test_a_redirect_is_followed(tmp_path):
    """As the client does, by which it is sent anew: the server that redirects has not acted."""

    def handler(heard):
        if heard.target == "/there":
            return answer(b"1")
        return answer(status="307 Temporary Redirect", headers=["Location: /there"])

    body, heard = run(tmp_path, handler, lambda t: t.request(POST))
    assert body == b"1"
    assert [(one.method, one.target) for one in heard[-1:]] == [("POST", "/there")]
    assert json.loads(heard[-1].body) == POST.body


def test_a_refused_token_is_read_anew(tmp_path):
    """With the session that comes with it."""
    token = tmp_path / "token"
    token.write_text("old", encoding="utf-8")

    def handler(heard):
        is_new = heard.headers["authorization"] == "Bearer new"
        return answer() if is_new else refused(401, "Unauthorized")

    async def rotate(transport):
        token.write_text("new", encoding="utf-8")
        for _ in range(2):
            await transport.request(POST)

    _, heard = run(tmp_path, handler, rotate, tokenFile=str(token))
    tokens = [one.headers["authorization"] for one in heard]
    assert tokens == ["Bearer old", "Bearer new", "Bearer new"]


def test_a_header_holds_no_line_end(tmp_path):
    """Whatever a credential is, it writes no header of its own."""

    async def attempt(transport):
        transport._client.configuration.api_key["BearerToken"] = "a\r\nX-Other: b"
        with pytest.raises(ValueError, match="line end"):
            await transport.request(POST)

    assert run(tmp_path, answer(), attempt, token=TOKEN)[1] == []


def test_nobody_there_is_told(tmp_path):
    """Nothing was sent, so nothing was done."""

    async def attempt():
        last = answer(headers=["Connection: close"])
        async with raw_server(lambda _: last) as server:
            transport = await Transport.connect(write_kubeconfig(tmp_path, server.url, {}))
            await transport.request(GET)
        try:
            await transport.request(POST)
        finally:
            await transport.close()

    with pytest.raises(Unreachable) as caught:
        asyncio.run(attempt())
    assert caught.value.reason == "Unreachable"


def session_of(transport):
    """The session that the client has by now."""
    return transport._client.rest_client.pool_manager


def test_a_connection_that_takes_too_long_is_told(tmp_path):
    """Before anything was sent."""

    async def attempt(transport):
        async def connect(*_):
            raise TimeoutError

        session_of(transport).connector.connect = connect
        await transport.request(POST)

    error, heard = run(tmp_path, answer(), attempt)
    assert isinstance(error, KubeError)
    assert (type(error), error.reason, heard) == (Unreachable, "Unreachable", [])


def test_a_connection_that_was_lost_at_once_is_told(tmp_path):
    """The server may close it as soon as it is there."""

    async def attempt(transport):
        connector = session_of(transport).connector
        make = connector.connect

        async def connect(*args):
            connection = await make(*args)
            connection.protocol.close()
            return connection

        connector.connect = connect
        await transport.request(POST)

    error, heard = run(tmp_path, answer(), attempt)
    assert isinstance(error, KubeError)
    assert (type(error), error.reason, heard) == (Unanswered, "ConnectionLost", [])


def test_who_hangs_up_leaves_no_connection_behind(tmp_path):
    """The answer to the request that was left must not be taken for the next one's."""

    def handler(heard):
        return [HANG] if heard.target == "/slow" else answer(b"mine")

    async def leave(transport):
        slow = Request("POST", "/slow", 5.0, body={})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(transport.request(slow), SILENCE_S)
        return await transport.request(POST)

    assert run(tmp_path, handler, leave)[0] == b"mine"


def test_many_writes_go_out_at_once(tmp_path):
    """A burst of binds waits for no free connection, and each gets its own answer."""
    n_writes = 50

    async def burst(transport):
        writes = [Request("POST", f"/{i}", 5.0, body={}) for i in range(n_writes)]
        return await asyncio.gather(*map(transport.request, writes))

    bodies, _ = run(tmp_path, lambda heard: answer(heard.target.encode()), burst)
    assert bodies == [f"/{i}".encode() for i in range(n_writes)]
