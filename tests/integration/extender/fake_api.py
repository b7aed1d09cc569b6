"""The product's API server in memory, over real HTTP, with what tests do to it.

A test puts, changes and deletes objects, reads Events, and lets requests fail. Objects are known by
their names alone: tests use one namespace. What the server answers is `extender.embedded`'s;
tests/cluster holds the same programs against a real one.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import aclosing, asynccontextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from aiohttp import web

from extender.embedded import EmbeddedApi
from kube.client import Request
from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

Json = dict[str, Any]
TIMEOUT_S = 60.0


class FakeApi(EmbeddedApi):
    """The server; `events` are those that came.

    `faults` are the statuses that answer the next requests whose method, path and field selector,
    with blanks between them, contain the key; watches meet none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Json] = []
        self.faults: dict[str, list[int]] = {}
        self._turn = asyncio.Event()

    @property
    def objects(self) -> Mapping[str, Mapping[str, Json]]:
        """All objects of each kind by name."""
        return {
            kind: {one["metadata"]["name"]: one for one in found.values()}
            for kind, found in super().objects.items()
        }

    def put(self, kind: str, content: Json) -> Json:
        """Create or replace an object; returns it as it is then."""
        return deepcopy(super().put(kind, deepcopy(content)))

    def change(self, kind: str, name: str, act: Callable[[Json], object]) -> None:
        """Change an object."""
        content = deepcopy(self.objects[kind][name])
        act(content)
        self.put(kind, content)

    def delete(self, kind: str, name: str) -> None:
        """Remove an object."""
        keys = super().objects[kind]
        self.remove(kind, next(key for key in keys if key.rpartition("/")[2] == name))

    def annotations(self, name: str) -> dict[str, str]:
        """A pod's annotations."""
        found: dict[str, str] = self.objects["pods"][name]["metadata"].get("annotations", {})
        return found

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something holds; looked at after every request."""
        async with asyncio.timeout(TIMEOUT_S):
            while not is_so():
                await self._turn.wait()

    async def request(self, request: Request) -> bytes:
        """Answer, with a fault where there is one for it."""
        said = f"{request.method} {request.path} {request.query.get('fieldSelector', '')}"
        found = next((one for key, one in self.faults.items() if one and key in said), None)
        if found is not None:
            raise KubeError(found.pop(0), "Fault", said)
        answer = await super().request(request)
        if request.path.endswith("/events"):
            self.events.append(json.loads(answer))
        self._turn.set()
        self._turn = asyncio.Event()
        return answer

    async def handle(self, asked: web.Request) -> web.StreamResponse:
        """Answer over HTTP."""
        request = Request(
            asked.method,
            asked.rel_url.raw_path,
            TIMEOUT_S,
            query=dict(asked.query),
            body=await asked.json() if asked.can_read_body else None,
            accept=asked.headers["Accept"],
        )
        if "watch" in request.query:
            return await self._watch(asked, request)
        try:
            return web.Response(body=await self.request(request), content_type="application/json")
        except KubeError as error:
            causes = {"causes": [{"field": field} for field in error.fields]}
            said = {"reason": error.reason, "message": error.detail, "details": causes}
            return web.json_response(said, status=error.status)

    async def _watch(self, asked: web.Request, request: Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(asked)
        async with aclosing(self.lines(request)) as bundles:
            async for lines in bundles:
                await response.write(b"".join(line + b"\n" for line in lines))
        return response


@asynccontextmanager
async def fake_api(folder: Path) -> AsyncIterator[tuple[FakeApi, Path]]:
    """Run one; the API and a kubeconfig for it."""
    api = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    cluster = {"server": f"http://127.0.0.1:{listener.getsockname()[1]}"}
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    try:
        yield api, kubeconfig
    finally:
        await runner.cleanup()
