"""The servers over real sockets: TLS that follows its files, plain health beside it, the end."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
import pytest
from cryptography import x509
from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Router

from extender.http import server
from extender.http.server import GC_THRESHOLDS, Listener, freeze, listen, run_until_signal
from extender.http.tls import Certificates
from extender.http.verbs import verb_route
from extender.protocol import Answer, Outcome, Reason, Verb
from kube.errors import SettingsError
from tests.unit.extender.pki import HOST, authority, client_context, issue
from tests.unit.extender.shells import Log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.requests import Request

    from extender.http.tls import TlsFiles

SOON_S = 60.0


class WatchedLog(Log):
    """A log that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Event()

    def info(self, event: str, **fields: object) -> None:
        """Take a line."""
        super().info(event, **fields)
        self._turn.set()

    warning = info

    async def until(self, n_lines: int) -> None:
        """Wait for so many lines."""
        async with asyncio.timeout(SOON_S):
            while len(self.lines) < n_lines:
                self._turn.clear()
                await self._turn.wait()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """On a free port."""
    with listen("127.0.0.1", 0, setting="x") as made:
        yield made


@pytest.fixture
def other_listener() -> Iterator[socket.socket]:
    """On another one."""
    with listen("127.0.0.1", 0, setting="x") as made:
        yield made


def hello(act: Callable[[], Awaitable[None]] | None = None) -> FastAPI:
    """An application that says hello, after `act`."""
    app = FastAPI()

    async def handle(_request: Request) -> Response:
        if act is not None:
            await act()
        return Response("hello")

    app.add_route("/", handle, methods=["GET"])
    return app


def url(listener: socket.socket, scheme: str = "http") -> str:
    """Where it listens."""
    return f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/"


def serve(
    listeners: list[Listener], meanwhile: Callable[[], Awaitable[None]], log: Log, **more: Any
) -> None:
    """Serve until `meanwhile` has ended, then SIGTERM."""

    async def act() -> None:
        try:
            await meanwhile()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    async def go() -> None:
        acting = asyncio.create_task(act())
        async with asyncio.timeout(SOON_S):
            await run_until_signal(listeners, keep_alive_s=120, log=log, **more)
        await acting

    before = signal.getsignal(signal.SIGTERM)
    asyncio.run(go())
    assert signal.getsignal(signal.SIGTERM) is before


def client(files: TlsFiles | None = None) -> httpx.AsyncClient:
    """A client, with a certificate if it has one."""
    verify = True if files is None else client_context(files)
    return httpx.AsyncClient(verify=verify, trust_env=False, timeout=SOON_S)


async def get(client: httpx.AsyncClient, where: str) -> httpx.Response:
    """One request; the server's certificate is checked for its name, whatever the address."""
    return await client.get(where, extensions={"sni_hostname": HOST})


def shown(response: httpx.Response) -> int:
    """Serial number of the certificate that the server showed on this connection."""
    tls = response.extensions["network_stream"].get_extra_info("ssl_object")
    return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True)).serial_number


def serial(files: TlsFiles) -> int:
    """Serial number of the certificate in the file."""
    return x509.load_pem_x509_certificate(files.cert.read_bytes()).serial_number


def test_a_rotated_certificate_needs_no_restart(tmp_path, listener, monkeypatch):
    """New connections see it, the scheduler's open one lives on."""

    async def go() -> None:
        async with client(mine) as scheduler, client(mine) as late:
            first = await get(scheduler, where)
            old = shown(first)
            issue(tmp_path / "server", by)
            await log.until(1)
            again = await get(scheduler, where)
            new = await get(late, where)
            connections = [one.extensions["network_stream"] for one in (first, again)]
            ports = {one.get_extra_info("client_addr")[1] for one in connections}
            assert len(ports) == 1
            assert (shown(again), shown(new)) == (old, serial(files))
            assert shown(new) != old

    monkeypatch.setattr(server, "CERTIFICATES_EVERY_S", 0.01)
    by, log = authority(), WatchedLog()
    files = issue(tmp_path / "server", by)
    mine = issue(tmp_path / "client", by)
    where = url(listener, "https")
    serve([Listener(hello(), listener, Certificates(files))], go, log)
    assert log.events[0] == "certificates_changed"


def test_a_broken_rotation_is_logged_once(tmp_path, listener, monkeypatch):
    """And ends when the files fit together again."""

    async def go() -> None:
        files.key.unlink()
        await log.until(1)
        n_before = looked.call_count
        while looked.call_count < n_before + 3:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        assert log.events == ["certificates_unusable"]
        issue(tmp_path, by)
        await log.until(2)

    monkeypatch.setattr(server, "CERTIFICATES_EVERY_S", 0.01)
    by, log = authority(), WatchedLog()
    files = issue(tmp_path, by)
    certificates = Certificates(files)
    looked = mock.Mock(wraps=certificates.reload)
    monkeypatch.setattr(certificates, "reload", looked)
    serve([Listener(hello(), listener, certificates)], go, log)
    assert log.events[1] == "certificates_changed"


def test_health_is_plain_beside_tls(tmp_path, listener, other_listener):
    """The kubelet brings no certificate; without one the other port refuses the connection."""

    async def go() -> None:
        async with client() as kubelet:
            assert (await get(kubelet, url(other_listener))).text == "hello"
            with pytest.raises(httpx.TransportError):
                await get(kubelet, url(listener))
            with pytest.raises(httpx.TransportError):
                await get(kubelet, url(listener, "https"))

    certificates = Certificates(issue(tmp_path, authority()))
    listeners = [Listener(hello(), listener, certificates), Listener(hello(), other_listener)]
    serve(listeners, go, Log())


def echo(body: bytes | None) -> Answer:
    """Answer with the body, or with 413 where it was too large."""
    if body is None:
        return Answer(Verb.PRIORITIZE, Outcome.FAILED, b"{}", 0, Reason.TOO_LARGE)
    return Answer(Verb.PRIORITIZE, Outcome.OK, body, 0)


def post(body: bytes, *headers: str) -> bytes:
    """A call as Go's client sends it."""
    head = ["POST /verb HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body


async def answers(stream: asyncio.StreamReader, count: int) -> list[tuple[int, bytes]]:
    """Read that many answers from a connection: status and body."""
    read: list[tuple[int, bytes]] = []
    while len(read) < count:
        head = (await stream.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split()[1])
        if status == 100:
            continue
        (length,) = [line for line in head.split("\r\n") if line.startswith("content-length:")]
        read.append((status, await stream.readexactly(int(length.partition(":")[2]))))
    return read


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([post(b"1"), post(b"22")], [(200, b"1"), (200, b"22")], id="one by one"),
        pytest.param([post(b"1") + post(b"22")], [(200, b"1"), (200, b"22")], id="pipelined"),
        pytest.param([post(b"1", "Expect: 100-continue")], [(200, b"1")], id="expect continue"),
        pytest.param([post(b"123")[:-2], b"23"], [(200, b"123")], id="in pieces"),
        pytest.param([post(b"x" * 99), post(b"1")], [(413, b"{}"), (200, b"1")], id="too large"),
    ],
)
def test_the_verbs_keep_their_connection(listener, sent, expected):
    """kube-scheduler reuses its connections; closing one costs every pod a handshake."""

    async def go() -> None:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        read: list[tuple[int, bytes]] = []
        for piece in sent:
            writer.write(piece)
            await writer.drain()
            if len(sent) == len(expected):
                read += await answers(reader, 1)
        read += await answers(reader, len(expected) - len(read))
        assert read == expected
        writer.close()
        await writer.wait_closed()

    app = Router([verb_route("/verb", echo, body_limit_bytes=10)], default=hello())
    serve([Listener(app, listener)], go, Log())


def test_what_is_under_way_at_the_end_is_answered(listener):
    """A bind that was written must be reported."""

    async def act() -> None:
        began.set()
        await may_end.wait()

    async def go() -> None:
        async with client() as scheduler:
            call = asyncio.create_task(get(scheduler, url(listener)))
            await began.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            asyncio.get_running_loop().call_later(0.3, may_end.set)
            assert (await call).text == "hello"

    began, may_end = asyncio.Event(), asyncio.Event()
    serve([Listener(hello(act), listener)], go, Log())


def test_what_runs_beside_ends_with_the_servers(listener):
    """Cancelled, after the last request."""

    async def beside() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def go() -> None:
        await began.wait()

    began = asyncio.Event()
    ended: list[bool] = []
    serve([Listener(hello(), listener)], go, Log(), background=beside)
    assert ended == [True]


def test_a_fault_beside_ends_the_servers(listener):
    """A program whose state is no longer updated must be restarted."""

    async def beside() -> None:
        msg = "bug"
        raise RuntimeError(msg)

    async def go() -> None:
        await run_until_signal(
            [Listener(hello(), listener)], keep_alive_s=1, log=Log(), background=beside
        )

    with pytest.raises(RuntimeError, match="bug"):
        asyncio.run(go())


def test_an_address_that_cannot_be_bound_is_logged():
    """By setting, address and port."""
    with pytest.raises(SettingsError, match=r"setting health_port \(256\.0\.0\.1, port 1\)"):
        listen("256.0.0.1", 1, setting="health_port")


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])  # noqa: S104 - free ports, for a moment
def test_the_unspecified_address_is_of_both_families(address):
    """A pod of an IPv6-only cluster has no IPv4 address, nor that of an older one any IPv6."""
    with listen(address, 0, setting="x") as listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 5.0).close()
        if listener.family == socket.AF_INET6:
            socket.create_connection(("::1", port), 5.0).close()


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_without_ipv6_all_ipv4_addresses_are_listened_on(number, monkeypatch):
    """A host that has IPv6 disabled."""
    create_server = socket.create_server

    def without_ipv6(address: tuple[str, int], **options: Any) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError(number, "no IPv6")
        return create_server(address, **options)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    with listen("::", 0, setting="x") as listener:
        assert listener.family == socket.AF_INET


def test_a_port_that_is_taken_is_reported_whatever_the_family():
    """Falling back to IPv4 would listen beside the other program."""
    with listen("::", 0, setting="x") as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SettingsError, match="cannot listen there"):
            listen("::", port, setting="x")


def test_ipv6_addresses_are_listened_on():
    """Where the machine has them."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listener = listen("::1", 0, setting="x")
    except SettingsError:
        pytest.skip("no IPv6 address here")
    with listener:
        assert listener.family == socket.AF_INET6


def test_what_is_there_is_passed_over_by_the_collector():
    """Requests make garbage without cycles; collecting 5,000 nodes for it would take longer."""
    before = gc.get_threshold()
    try:
        freeze()
        assert gc.get_threshold() == GC_THRESHOLDS
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
