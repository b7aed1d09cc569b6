"""The proxy in front of a small server: what it passes on, and what it does to a client."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.cluster.control.api import ApiError, open_api
from tests.cluster.control.proxy import Trouble, open_proxy, write_kubeconfig

pytestmark = pytest.mark.cluster

SOON_S = 60


class Upstream:
    """Remembers what reached it; its watches say one line and then wait."""

    def __init__(self):
        self.calls = []
        self.more = asyncio.Event()

    async def answer(self, request):
        """Echo, or a watch of two lines."""
        body = await request.text()
        self.calls.append(
            (request.method, request.path_qs, body, request.headers.get("Authorization"))
        )
        if "watch" not in request.query:
            return web.json_response({"path": request.path_qs}, status=201)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED","object":1}\n')
        await self.more.wait()
        await response.write(b'{"type":"ADDED","object":2}\n')
        return response


@asynccontextmanager
async def setting(folder, seed=1):
    """A server, the proxy before it, and a client before that."""
    upstream = Upstream()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", upstream.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "direct").write_text(json.dumps(config))
    try:
        async with open_proxy(folder / "direct", seed=seed) as proxy:
            write_kubeconfig(proxy, folder / "proxied")
            async with open_api(folder / "proxied") as api:
                yield upstream, proxy, api
    finally:
        upstream.more.set()
        await runner.cleanup()


def run(test, folder, **options):
    """Run an asynchronous test, with a limit."""

    async def main():
        async with asyncio.timeout(SOON_S), setting(folder, **options) as parts:
            await test(*parts)

    asyncio.run(main())


def test_watches_are_streamed_and_can_be_broken(tmp_path):
    """A line arrives when it is said, not when the watch ends."""

    async def test(_upstream, proxy, api):
        seen = []

        async def watch():
            async for event in api.watch("/w", resourceVersion="7"):
                seen.append(event)
                assert proxy.break_watches() == 1

        with pytest.raises(ApiError, match="0: "):
            await watch()
        assert seen == [("ADDED", 1)]

    run(test, tmp_path)


def test_a_request_can_be_held_at_the_door(tmp_path):
    """So that a test can do something exactly between a decision and its writing."""

    async def test(upstream, proxy, api):
        with proxy.held("/binding") as hold:
            write = asyncio.ensure_future(api.create("/pods/a/binding", {}))
            await hold.came.wait()
            await api.get("/pods/a")
            assert [path for _, path, _, _ in upstream.calls] == ["/pods/a"]
            hold.release()
            assert await write == {"path": "/pods/a/binding"}
        assert len(upstream.calls) == 2

    run(test, tmp_path)


@pytest.mark.parametrize(
    ("is_late", "n_calls"),
    [
        pytest.param(False, 0, id="the API server never saw it"),
        pytest.param(True, 1, id="only the answer is lost"),
    ],
)
@pytest.mark.parametrize("status", [429, 500, 503])
def test_requests_fail_before_or_after_they_were_acted_on(tmp_path, status, is_late, n_calls):
    """Both are real: a writer that retries must reckon with either."""

    async def test(upstream, proxy, api):
        proxy.set_trouble(Trouble(failing=1.0, status=status, is_late=is_late))
        with pytest.raises(ApiError) as failure:
            await api.create("/pods", {})
        assert failure.value.status == status
        assert failure.value.is_transient
        assert len(upstream.calls) == n_calls
        assert proxy.seen["failed"] == 1

    run(test, tmp_path)


def test_the_seed_decides_which_requests_suffer(tmp_path):
    """A run that found something can be had again."""
    fates: list[list[int]] = []

    async def test(_upstream, proxy, api):
        proxy.set_trouble(Trouble(failing=0.3, cut=0.2))
        fates.append([])
        for _ in range(30):
            try:
                await api.get("/x")
                fates[-1].append(200)
            except ApiError as error:
                fates[-1].append(error.status)

    run(test, tmp_path, seed=5)
    run(test, tmp_path, seed=5)
    run(test, tmp_path, seed=6)
    assert fates[0] == fates[1] != fates[2]
    assert set(fates[0]) == {0, 200, 500}
