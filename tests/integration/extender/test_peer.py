"""Calls between replicas over real connections: plain, and with certificates on both sides."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from extender.errors import PeerError
from extender.ha import FORWARDED_FOR, TIME_LEFT, Peer
from extender.http.tls import Certificates
from tests.unit.extender.pki import HOST, authority, issue

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

ME = "http://me"


@asynccontextmanager
async def replica(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[Any]]]:
    """A replica that answers every bind; its URL, and the requests that it received."""
    received: list[Any] = []

    async def bind(request: web.Request) -> web.Response:
        received.append((dict(request.headers), await request.read()))
        return web.Response(body=b'{"Error":""}')

    async def hang(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    app = web.Application()
    app.add_routes([web.post("/bind", bind), web.post("/hang", hang)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener, ssl_context=tls).start()
    scheme = "http" if tls is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", received
    finally:
        await runner.cleanup()


def test_a_call_is_handed_on_as_it_is():
    """With the replica that was called first, and the time that is left for the answer."""

    async def go() -> None:
        async with replica() as (url, received):
            peer = Peer(ME, tls=None, name="ignored.test")
            assert await peer.forward(url, "bind", b"body", timeout_s=3.5) == b'{"Error":""}'
            assert await peer.forward(url, "bind", b"more", timeout_s=3.5) == b'{"Error":""}'
            await peer.close()
            await peer.close()
            (headers, body), _ = received
            assert body == b"body"
            assert (headers[FORWARDED_FOR], headers[TIME_LEFT]) == (ME, "3.500")

    asyncio.run(go())


@pytest.mark.parametrize(
    ("verb", "timeout_s", "message"),
    [
        pytest.param("filter", 5.0, "answered with status 404, expected 200", id="no such verb"),
        pytest.param("hang", 0.05, "cannot be reached: TimeoutError", id="no answer in time"),
    ],
)
def test_what_is_no_answer_is_an_error(verb, timeout_s, message):
    """The error is in the scheduler's own field, and it retries."""

    async def go() -> None:
        async with replica() as (url, _):
            peer = Peer(ME, tls=None, name=None)
            with pytest.raises(PeerError, match=message):
                await peer.forward(url, verb, b"body", timeout_s=timeout_s)
            await peer.close()

    asyncio.run(go())


def test_a_replica_that_is_gone_is_an_error():
    """Its port is closed."""

    async def go() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        peer = Peer(ME, tls=None, name=None)
        with pytest.raises(PeerError, match="cannot be reached"):
            await peer.forward(f"http://127.0.0.1:{port}", "bind", b"", timeout_s=5.0)
        await peer.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("name", "is_trusted", "is_accepted"),
    [
        pytest.param(HOST, True, True, id="both sides are known"),
        pytest.param("elsewhere.test", True, False, id="another name"),
        pytest.param(None, True, False, id="an address, which no certificate holds"),
        pytest.param(HOST, False, False, id="another authority"),
    ],
)
def test_over_tls_both_sides_are_verified(tmp_path, name, is_trusted, is_accepted):
    """A replica's address changes, so its certificate is checked for the Service's name."""

    async def go() -> None:
        async with replica(server.server) as (url, received):
            peer = Peer(ME, tls=lambda: client.client, name=name)
            if is_accepted:
                await peer.forward(url, "bind", b"body", timeout_s=5.0)
            else:
                with pytest.raises(PeerError, match="cannot be reached"):
                    await peer.forward(url, "bind", b"body", timeout_s=5.0)
            await peer.close()
            assert len(received) == is_accepted

    by = authority()
    server = Certificates(issue(tmp_path / "server", by))
    client = Certificates(issue(tmp_path / "client", by if is_trusted else authority("other")))
    asyncio.run(go())
