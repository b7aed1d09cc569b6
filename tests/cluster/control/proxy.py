"""A proxy between one client and the API server that goes wrong on demand.

Answers every request as the API server does, watches streamed line by line, until a test configures
it to be slow, to answer 429 or 5xx, to cut connections in the middle, to hang, or to be
unreachable. What it does to which request is drawn from a seed. It speaks plain HTTP to its client
and is, for the API server, whoever the kubeconfig says: the client's rights are tested with it in
between.

It never makes up an object: what it passes on is the API server's word, and what it refuses never
reached the API server, except where `Trouble.is_late` says that the answer alone is lost.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from yarl import URL

from tests.cluster.control.api import credentials_of, open_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

__all__ = ["CALM", "Hold", "Proxy", "Trouble", "open_proxy", "write_kubeconfig"]

_HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
_MAX_BODY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Trouble:
    """How bad things are; shares 0..1 are of all requests, watches included.

    `delay_s`: longest delay, drawn evenly. `status` is what a failing request gets, `is_late` lets
    the API server act on it first (as no API server does before a 429). `cut` breaks the connection
    before any answer, `hang` never answers. `is_gone` refuses everything and breaks the watches
    that are open.
    """

    delay_s: float = 0.0
    failing: float = 0.0
    status: int = 500
    is_late: bool = False
    cut: float = 0.0
    hang: float = 0.0
    is_gone: bool = False


CALM = Trouble()


class Hold:
    """Requests that are kept back; `came` is set when the first one is there."""

    def __init__(self, ending: str) -> None:
        self.ending = ending
        self.came = asyncio.Event()
        self.is_over = asyncio.Event()

    def release(self) -> None:
        """Let them all go on, and those that follow."""
        self.is_over.set()


class Proxy:
    """Made by `open_proxy`. `n_requests` by what became of them."""

    def __init__(self, upstream: aiohttp.ClientSession, server: str, seed: int) -> None:
        self.trouble = CALM
        self.port = 0
        self.seen: Counter[str] = Counter()
        self._upstream = upstream
        self._server = server
        self._chance = random.Random(seed)  # noqa: S311 - faults that can be repeated
        self._watches: dict[int, web.Request] = {}
        self._flow = asyncio.Event()
        self._flow.set()
        self._holds: list[Hold] = []

    @property
    def url(self) -> str:
        """Where the client finds the API server."""
        return f"http://127.0.0.1:{self.port}"

    def break_watches(self) -> int:
        """Cut every watch that is open, in the middle; how many there were."""
        found = list(self._watches.values())
        for request in found:
            _cut(request)
        return len(found)

    def set_trouble(self, trouble: Trouble) -> None:
        """From now on; open watches stay open unless everything is gone."""
        self.trouble = trouble
        if trouble.is_gone:
            self.break_watches()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Meanwhile no watch says anything, as on a network that lags; nothing is lost."""
        self._flow.clear()
        try:
            yield
        finally:
            self._flow.set()

    @contextmanager
    def held(self, ending: str) -> Iterator[Hold]:
        """Meanwhile requests whose path ends so are kept back, until `Hold.release` or the end."""
        hold = Hold(ending)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)
            hold.release()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        trouble, chance = self.trouble, self._chance.random()
        body = await request.read()
        for hold in list(self._holds):
            if request.path.endswith(hold.ending):
                hold.came.set()
                await hold.is_over.wait()
        await asyncio.sleep(self._chance.uniform(0, trouble.delay_s))
        if trouble.is_gone or chance < trouble.cut:
            self.seen["cut"] += 1
            _cut(request)
            return web.Response()
        chance -= trouble.cut
        if chance < trouble.hang:
            self.seen["hung"] += 1
            await asyncio.Event().wait()
        if chance - trouble.hang < trouble.failing:
            self.seen["failed"] += 1
            if trouble.is_late and "watch" not in request.query:
                await self._pass_on(request, body)
            return _failure(trouble.status)
        self.seen["passed"] += 1
        return await self._pass_on(request, body)

    async def _pass_on(self, request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        headers.pop("Authorization", None)
        headers |= self._upstream.headers
        try:
            async with self._upstream.request(
                request.method,
                URL(self._server + request.raw_path, encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
            ) as answer:
                if "watch" in request.query:
                    return await self._stream(request, answer)
                content = await answer.read()
                kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
                return web.Response(status=answer.status, headers=kept, body=content)
        except (aiohttp.ClientError, OSError):
            _cut(request)
            return web.Response()

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
        response = web.StreamResponse(status=answer.status, headers=kept)
        await response.prepare(request)
        self._watches[id(request)] = request
        try:
            async for chunk in answer.content.iter_any():
                await self._flow.wait()
                await response.write(chunk)
            await response.write_eof()
        except aiohttp.ClientError:
            _cut(request)
        finally:
            del self._watches[id(request)]
        return response


@asynccontextmanager
async def open_proxy(kubeconfig: Path, *, seed: int) -> AsyncIterator[Proxy]:
    """Serve on a free port, towards the server and as the user of the kubeconfig."""
    server, tls, headers = credentials_of(kubeconfig)
    async with open_session(
        tls=tls,
        n_connections=0,
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        skip_auto_headers={"Accept-Encoding", "User-Agent", "Content-Type"},
    ) as upstream:
        proxy = Proxy(upstream, server, seed)
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", proxy.answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            proxy.port = runner.addresses[0][1]
            yield proxy
        finally:
            proxy.set_trouble(Trouble(is_gone=True))
            await runner.cleanup()


def write_kubeconfig(proxy: Proxy, path: Path) -> None:
    """A kubeconfig that leads through the proxy; the proxy brings the credentials."""
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "proxied", "cluster": {"server": proxy.url}}],
                "users": [{"name": "proxied", "user": {"token": "unused"}}],
                "contexts": [
                    {"name": "proxied", "context": {"cluster": "proxied", "user": "proxied"}}
                ],
                "current-context": "proxied",
            }
        ),
        encoding="utf-8",
    )


def _cut(request: web.Request) -> None:
    """Break the connection under the client's hands."""
    if request.transport is not None:
        request.transport.abort()


def _failure(status: int) -> web.Response:
    """The Status object that an API server in trouble sends."""
    reason = {429: "TooManyRequests", 503: "ServiceUnavailable", 504: "Timeout"}.get(status)
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "the proxy of the tests says so",
        "reason": reason or "InternalError",
        "code": status,
    }
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.json_response(body, status=status, headers=headers)
