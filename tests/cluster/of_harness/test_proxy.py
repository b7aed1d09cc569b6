"""The proxy in front of a small server: what it passes on, and what it does to a client."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from tests.cluster.control.api import ApiError, open_api, patiently
from tests.cluster.control.proxy import CALM, Trouble, open_proxy, write_kubeconfig

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


def test_calls_pass_with_the_proxys_own_credentials(tmp_path):
    """The client's identity is the proxy's kubeconfig; path, query and body are untouched."""

    async def test(upstream, _proxy, api):
        answer = await api.call("POST", "/api/v1/a%2Fb", {"x": 1}, fieldSelector="a!=b,c=d")
        assert answer == {"path": "/api/v1/a%2Fb?fieldSelector=a!%3Db,c%3Dd"}
        assert upstream.calls == [
            ("POST", answer["path"], '{"x": 1}', "Bearer secret"),
        ]

    run(test, tmp_path)


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


def test_a_stalled_watch_says_everything_later(tmp_path):
    """What a lagging network does: nothing is lost, and nothing comes in time."""

    async def test(upstream, proxy, api):
        async with aclosing(api.watch("/w")) as watch:
            assert await anext(watch) == ("ADDED", 1)
            with proxy.stalled():
                upstream.more.set()
                late = asyncio.ensure_future(anext(watch))
                assert await api.get("/x") == {"path": "/x"}
                assert not late.done()
            assert await late == ("ADDED", 2)

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


def test_a_dead_proxy_breaks_watches_and_refuses_calls(tmp_path):
    """What the API server's death looks like; and it comes back."""

    async def test(upstream, proxy, api):
        async with aclosing(api.watch("/w")) as watch:
            await anext(watch)
            proxy.set_trouble(Trouble(is_gone=True))
            with pytest.raises(ApiError, match="0: "):
                await anext(watch)
        with pytest.raises(ApiError, match="0: "):
            await api.get("/x")
        proxy.set_trouble(CALM)
        assert await api.get("/x") == {"path": "/x"}
        assert [path for _, path, _, _ in upstream.calls] == ["/w?watch=true", "/x"]

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


def test_a_hanging_request_never_ends_by_itself(tmp_path):
    """The client's own deadline has to end it."""

    async def test(upstream, proxy, api):
        proxy.set_trouble(Trouble(hang=1.0))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await api.get("/x")
        assert upstream.calls == []

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


def test_a_dead_api_server_is_a_cut_connection(tmp_path):
    """The proxy adds nothing of its own to a failure behind it."""

    async def test(_upstream, _proxy, _api):
        (tmp_path / "unreachable").write_text(
            (tmp_path / "direct").read_text().replace("127.0.0.1", "127.255.255.254")
        )
        async with (
            open_proxy(tmp_path / "unreachable", seed=1) as proxy,
            aiohttp.ClientSession() as client,
        ):
            with pytest.raises(aiohttp.ClientError):
                await client.get(proxy.url)

    run(test, tmp_path)


def test_patience_outlives_trouble(tmp_path):
    """The tests' own writers go on when the server is back, and pass a real refusal on."""

    async def test(upstream, proxy, api):
        proxy.set_trouble(Trouble(failing=1.0))
        attempts = []

        async def attempt():
            attempts.append(1)
            if len(attempts) == 3:
                proxy.set_trouble(CALM)
            return await api.get("/x")

        assert await patiently(attempt, for_s=SOON_S) == {"path": "/x"}
        assert proxy.seen == {"failed": 2, "passed": 1}
        assert len(upstream.calls) == 1
        proxy.set_trouble(Trouble(failing=1.0, status=403))
        with pytest.raises(ApiError, match="403"):
            await patiently(lambda: api.get("/x"))

    run(test, tmp_path)
