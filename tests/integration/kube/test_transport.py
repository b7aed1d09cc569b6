"""The transport over real sockets, against a server that does what real ones seldom do."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import yaml

from kube.client import METADATA, Request, Transport
from kube.errors import Conflict, KubeError, Malformed, Unanswered, Unreachable
from tests.cluster.control.credentials import Authority, kubeconfig
from tests.integration.kube.raw_server import (
    CUT,
    HANG,
    STREAM_END,
    STREAM_HEAD,
    answer,
    chunk,
    raw_server,
    refused,
)

SECRET = "very-secret-token"  # noqa: S105 - it must not appear anywhere
GET = Request("GET", "/api", 5.0)
SILENCE_S = 0.8
"""As long as a test waits for nothing to come."""


def write_kubeconfig(folder, url, user):
    """A kubeconfig of one cluster and one user."""
    content = yaml.safe_load(kubeconfig(url, b"", SECRET))
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    content["users"][0]["user"] = user
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@asynccontextmanager
async def connected(folder, handler, **user):
    """A server and a transport to it."""
    async with raw_server(handler) as server:
        transport = await Transport.connect(write_kubeconfig(folder, server.url, user))
        try:
            yield server, transport
        finally:
            await transport.close()


def run(folder, handler, call, **user):
    """What the call returned, and the server."""

    async def both():
        async with connected(folder, handler, **user) as (server, transport):
            return await call(transport), server

    return asyncio.run(both())


def patience_s(pieces):
    """The time to wait for an answer of these pieces: short only where no end of it comes."""
    return SILENCE_S if HANG in pieces else 30.0


async def all_lines(transport, timeout_s=5.0):
    """Every line of a stream."""
    stream = transport.lines(Request("GET", "/watch", timeout_s))
    return [line async for lines in stream for line in lines]


def test_a_request_has_its_path_query_and_headers(tmp_path):
    """Path and query as given, JSON, the requested form, and no compression."""
    request = Request(
        "POST",
        "/api/v1/namespaces/a%2Fb/pods",
        5.0,
        query={"fieldSelector": "spec.nodeName!=,status.phase!=Failed", "continue": "a+b/c="},
        body={"metadata": {"name": "é"}},
        accept=METADATA,
    )
    body, server = run(tmp_path, lambda _: answer(b'{"a":1}'), lambda t: t.request(request))
    received = server.received[0]
    assert (body, received.method) == (b'{"a":1}', "POST")
    path, _, query = received.target.partition("?")
    assert path == "/api/v1/namespaces/a%2Fb/pods"
    assert "%2B" in query
    assert " " not in query
    assert json.loads(received.body) == {"metadata": {"name": "é"}}
    assert received.headers["content-type"] == "application/json"
    assert received.headers["accept"] == METADATA
    assert received.headers["accept-encoding"] == "identity"
    assert received.headers["user-agent"] == "coterie"
    assert "authorization" not in received.headers


LINES = [b'{"a":"\xc3\xa9"}', b'{"b":2}', b"{}"]
STREAM = b"".join(line + b"\n" for line in LINES)


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM)])
def test_lines_are_the_same_whatever_the_chunks(tmp_path, size):
    """Byte by byte, too."""
    chunks = [chunk(STREAM[i : i + size]) for i in range(0, len(STREAM), size)]
    lines, _ = run(tmp_path, lambda _: [STREAM_HEAD, *chunks, STREAM_END], all_lines)
    assert lines == LINES


def test_a_line_may_be_as_long_as_etcd_allows(tmp_path):
    """A stream reader's own limit for a line is 64 KiB."""
    line = b"x" * 1_500_000
    lines, _ = run(tmp_path, lambda _: [STREAM_HEAD, chunk(line + b"\n{}"), STREAM_END], all_lines)
    assert lines == [line, b"{}"]


def test_a_line_without_an_end_ends_the_stream(tmp_path):
    """Memory is bounded."""
    pieces = [STREAM_HEAD, *[chunk(b"x" * 2**20)] * 20, HANG]
    with pytest.raises(Malformed):
        run(tmp_path, lambda _: pieces, all_lines)


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        pytest.param([HANG], "Timeout", id="silent before the answer"),
        pytest.param([STREAM_HEAD, chunk(b"{}\n"), HANG], "Timeout", id="silent in the middle"),
        pytest.param([CUT], "ConnectionLost", id="cut before the answer"),
        pytest.param([STREAM_HEAD, CUT], "ConnectionLost", id="cut after the head"),
        pytest.param([STREAM_HEAD, chunk(b"{}\n"), CUT], "ConnectionLost", id="cut in the middle"),
        pytest.param([STREAM_HEAD, b"5\r\n{}", CUT], "ConnectionLost", id="cut in a chunk"),
        pytest.param([STREAM_HEAD, b"zz\r\n"], "ConnectionLost", id="no chunk at all"),
        pytest.param([b"SMTP ready\r\n\r\n"], "ConnectionLost", id="no HTTP at all"),
    ],
)
def test_a_stream_that_fails_is_reported(tmp_path, pieces, reason):
    """Above all the one whose other end is gone without closing."""
    with pytest.raises(Unanswered) as caught:
        run(tmp_path, lambda _: pieces, lambda t: all_lines(t, patience_s(pieces)))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        pytest.param([HANG], "Timeout", id="silent"),
        pytest.param([answer(b"12345")[0][:-2], HANG], "Timeout", id="silent in the body"),
        pytest.param([CUT], "ConnectionLost", id="cut"),
        pytest.param([answer(b"12345")[0][:-2], CUT], "ConnectionLost", id="cut in the body"),
    ],
)
def test_a_write_without_an_answer_may_have_been_done(tmp_path, pieces, reason):
    """The class says so, so that it is not taken for a refusal; nothing is sent twice."""

    async def attempt(transport):
        with pytest.raises(Unanswered) as caught:
            await transport.request(Request("POST", "/api", patience_s(pieces), body={}))
        return caught.value

    error, server = run(tmp_path, lambda _: pieces, attempt)
    assert (error.status, error.reason, error.is_transient) == (0, reason, True)
    assert len(server.received) == 1


def test_a_server_that_is_not_there_is_reported(tmp_path):
    """Nothing was sent, so nothing was done."""

    async def attempt():
        async with raw_server(lambda _: answer()) as server:
            path = write_kubeconfig(tmp_path, server.url, {})
        transport = await Transport.connect(path)
        try:
            with pytest.raises(Unreachable) as caught:
                await transport.request(GET)
        finally:
            await transport.close()
        return caught.value

    assert asyncio.run(attempt()).reason == "Unreachable"


@pytest.mark.parametrize(
    ("pieces", "kind", "expected", "retry_after_s"),
    [
        (refused(409, "AlreadyExists"), Conflict, "409 AlreadyExists: no: AlreadyExists", None),
        (refused(429, "Busy", "Retry-After: 7"), KubeError, "429 Busy: no: Busy", 7.0),
        (refused(503, "Busy", "Retry-After: soon"), KubeError, "503 Busy: no: Busy", None),
        (
            answer(b"<html>", status="502 Bad Gateway"),
            KubeError,
            "502 Bad Gateway: <html>",
            None,
        ),
        (
            [b"HTTP/1.1 500 Broken\r\nContent-Length: 9\r\n\r\nhalf", CUT],
            KubeError,
            "500 Broken: half",
            None,
        ),
    ],
)
def test_a_refusal_is_reported(tmp_path, pieces, kind, expected, retry_after_s):
    """With the server's own words, cut; for streams just as for requests."""
    for call in (lambda t: t.request(GET), all_lines):
        with pytest.raises(kind) as caught:
            run(tmp_path, lambda _: pieces, call)
        assert (str(caught.value), caught.value.retry_after_s) == (expected, retry_after_s)


def test_a_refusal_may_come_in_pieces(tmp_path):
    """It is one Status, wherever the network cuts it."""
    whole = refused(409, "AlreadyExists")[0]
    with pytest.raises(Conflict, match="409 AlreadyExists: no"):
        run(tmp_path, lambda _: [whole[:-9], whole[-9:]], lambda t: t.request(GET))


def test_a_ca_file_that_is_none_is_reported(tmp_path):
    """Certificates are loaded at the start, not with the first request."""
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig("https://127.0.0.1:1", b"no PEM", SECRET), encoding="utf-8")
    with pytest.raises(Unreachable, match="certificates of https"):
        asyncio.run(Transport.connect(path))


def test_an_endless_refusal_is_not_read_to_its_end(tmp_path):
    """Only so much of a foreign page is worth reading."""
    head = b"HTTP/1.1 500 Broken\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [head, chunk(b"x" * 100_000), HANG]
    with pytest.raises(KubeError, match="500 Broken: xxx"):
        run(tmp_path, lambda _: pieces, lambda t: t.request(GET))


def test_many_requests_go_out_at_once(tmp_path):
    """A burst of binds beside the watches waits for no free connection."""
    n_requests = 100
    all_there = asyncio.Barrier(n_requests)

    async def handler(_):
        await all_there.wait()
        return answer()

    async def burst(transport):
        return await asyncio.gather(*(transport.request(GET) for _ in range(n_requests)))

    bodies, _ = run(tmp_path, handler, burst)
    assert len(bodies) == n_requests


def test_a_stream_can_be_left(tmp_path):
    """Then its connection is closed, and another request works."""

    async def leave(transport):
        stream = transport.lines(Request("GET", "/watch", 5.0))
        first = await anext(stream)
        await stream.aclose()
        return first, await transport.request(GET)

    def handler(received):
        watch = [STREAM_HEAD, chunk(b"{}\n"), HANG]
        return watch if received.target == "/watch" else answer(b"1")

    (first, body), _ = run(tmp_path, handler, leave)
    assert (first, body) == ([b"{}"], b"1")


# --- Credentials ---------------------------------------------------------------------------------


def who(received):
    """The token that came."""
    return received.headers.get("authorization", "")


def test_a_token_is_read_again_after_401(tmp_path):
    """Tokens are rotated under our feet; the request that met it is sent again."""
    token = tmp_path / "token"
    token.write_text("old\n", encoding="utf-8")

    async def rotate(transport):
        first = await transport.request(GET)
        token.write_text("new\n", encoding="utf-8")
        return first, await transport.request(GET), await transport.request(GET)

    seen = []

    def handler(received):
        seen.append(who(received))
        good = f"Bearer {token.read_text(encoding='utf-8').strip()}"
        return answer() if who(received) == good else refused(401, "Unauthorized")

    run(tmp_path, handler, rotate, tokenFile=str(token))
    assert seen == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]


def test_all_who_were_refused_share_one_renewal(tmp_path):
    """An exec plugin is a process: a hundred requests must not start a hundred."""
    calls, good = tmp_path / "calls", tmp_path / "good"
    good.write_text("t1", encoding="utf-8")
    script = (
        "import json, pathlib; n = pathlib.Path('CALLS'); "
        "n.write_text((n.read_text() if n.exists() else '') + 'x'); "
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', "
        "'kind': 'ExecCredential', 'status': {'token': 't' + str(len(n.read_text()))}}))"
    ).replace("CALLS", str(calls))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", script],
        "interactiveMode": "Never",
    }

    def handler(received):
        is_good = who(received) == f"Bearer {good.read_text(encoding='utf-8')}"
        return answer() if is_good else refused(401, "Unauthorized")

    async def burst(transport):
        await transport.request(GET)
        good.write_text("t2", encoding="utf-8")
        return await asyncio.gather(*(transport.request(GET) for _ in range(10)))

    bodies, _ = run(tmp_path, handler, burst, exec=plugin)
    assert len(bodies) == 10
    assert calls.read_text(encoding="utf-8") == "xx"


def test_credentials_that_stay_refused_are_expected_without_a_storm(tmp_path):
    """After one renewal the next ones wait some seconds; the token is in no message."""

    async def attempt(transport):
        errors = []
        for _ in range(3):
            with pytest.raises(KubeError) as caught:
                await transport.request(GET)
            errors.append(caught.value)
        return errors

    errors, server = run(tmp_path, lambda _: refused(401, "Unauthorized"), attempt, token=SECRET)
    assert [error.status for error in errors] == [401, 401, 401]
    assert len(server.received) == 4
    assert {who(received) for received in server.received} == {f"Bearer {SECRET}"}
    assert SECRET not in "".join(map(repr, errors)) + "".join(map(str, errors))


def test_a_second_renewal_ends_the_connections_of_the_first(tmp_path, monkeypatch):
    """Streams of older credentials live on to their end, but not for ever."""
    monkeypatch.setattr("kube.client.transport.RENEW_EVERY_S", 0.0)
    valid = {"Bearer a"}
    token = tmp_path / "token"

    def handler(received):
        if who(received) not in valid:
            return refused(401, "Unauthorized")
        return [STREAM_HEAD, chunk(b"1\n"), HANG] if received.target == "/watch" else answer()

    async def renewed(transport, name):
        token.write_text(name, encoding="utf-8")
        valid.clear()
        valid.add(f"Bearer {name}")
        await transport.request(GET)

    async def attempt(transport):
        stream = transport.lines(Request("GET", "/watch", 60.0))
        assert await anext(stream) == [b"1"]
        rest = asyncio.ensure_future(anext(stream))
        await renewed(transport, "b")
        assert not rest.done()
        await renewed(transport, "c")
        with pytest.raises(Unanswered):
            await asyncio.wait_for(rest, 5.0)

    token.write_text("a", encoding="utf-8")
    run(tmp_path, handler, attempt, tokenFile=str(token))


def test_a_pod_uses_its_service_account(tmp_path, monkeypatch):
    """The token file is read again each minute by the client; the server's name is checked."""
    authority = Authority("cluster")
    files = authority.server("127.0.0.1").write(tmp_path, "server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "token").write_text("of-the-pod", encoding="utf-8")
    home = "kubernetes.aio.config.incluster_config"
    monkeypatch.setattr(f"{home}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{home}.SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    clock = [datetime(2026, 1, 1, 12, tzinfo=UTC)]
    time = SimpleNamespace(datetime=SimpleNamespace(now=lambda: clock[0]), timedelta=timedelta)
    monkeypatch.setattr(f"{home}.datetime", time)
    # A proxy for what is outside is none for the API server.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")

    async def attempt():
        async with raw_server(lambda _: answer(b"1"), tls=tls) as server:
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
            transport = await Transport.connect(None)
            try:
                body = await transport.request(GET)
                (tmp_path / "token").unlink()
                clock[0] += timedelta(minutes=1)
                with pytest.raises(Unreachable) as caught:
                    await transport.request(GET)
            finally:
                await transport.close()
            return body, server, caught.value

    body, server, error = asyncio.run(attempt())
    assert (body, who(server.received[0])) == (b"1", "bearer of-the-pod")
    assert error.reason == "NoCredentials"


def test_a_server_that_cannot_prove_its_name_gets_nothing(tmp_path):
    """No request, no token."""
    trusted, other = Authority("cluster"), Authority("cluster")
    files = other.server("127.0.0.1").write(tmp_path, "server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)

    async def attempt():
        async with raw_server(lambda _: answer(), tls=tls) as server:
            path = tmp_path / "kubeconfig"
            path.write_text(kubeconfig(server.url, trusted.certificate, SECRET), encoding="utf-8")
            transport = await Transport.connect(path)
            try:
                with pytest.raises(Unreachable) as caught:
                    await transport.request(GET)
            finally:
                await transport.close()
            return caught.value, server.received

    error, received = asyncio.run(attempt())
    assert "CERTIFICATE_VERIFY_FAILED" in error.detail
    assert (received, SECRET in str(error)) == ([], False)


def test_a_proxy_of_the_environment_is_used_and_bypassed(tmp_path, monkeypatch):
    """As kubectl does it."""

    async def attempt():
        async with raw_server(lambda _: answer(b"proxy")) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            async with connected(tmp_path, lambda _: answer(b"server")) as (_, transport):
                direct = await transport.request(GET)
            monkeypatch.setenv("no_proxy", "")
            path = write_kubeconfig(tmp_path, "http://api.invalid", {})
            transport = await Transport.connect(path)
            try:
                return direct, await transport.request(GET), proxy.received[0].target
            finally:
                await transport.close()

    assert asyncio.run(attempt()) == (b"server", b"proxy", "http://api.invalid/api")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no file"),
        pytest.param("", id="empty"),
        pytest.param("[]", id="a list"),
        pytest.param(f"users: [{{token: {SECRET}", id="cut"),
        pytest.param("current-context: absent", id="no contexts"),
        pytest.param(
            kubeconfig("https://127.0.0.1:1", b"", SECRET).replace("-data", ""),
            id="an authority that is not there",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_reported(tmp_path, text):
    """At the start, by its path, and without what it holds."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(Unreachable) as caught:
        asyncio.run(Transport.connect(path))
    assert caught.value.reason == "BadConfiguration"
    assert str(path) in caught.value.detail
    assert SECRET not in caught.value.detail


def test_outside_a_pod_there_is_no_configuration_of_one(monkeypatch):
    """The message says what is missing."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unreachable, match="in-cluster configuration: Service host/port"):
        asyncio.run(Transport.connect(None))
