"""A read API whose answers a test gives, over real HTTP on the loopback."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["ReadApiServer"]


class ReadApiServer:
    """Answers of each path under /api/v1/, by method and path; others are 404 with a problem."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {"cluster": {"pods_pending": 0}, **answers}
        self.queries: list[tuple[str, dict[str, str]]] = []
        self.posted: list[bytes] = []
        self.port = 0
        self.stream = b""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ReadApiServer]:
        """Serve on a free port of the loopback."""
        app = web.Application()
        app.router.add_route("*", "/api/v1/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        self.queries.append((path, dict(request.query)))
        if request.method == "POST":
            self.posted.append(await request.read())
        if path == "changes" and self.stream:
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            await response.write(self.stream)
            return response
        found = self.answers.get(path)
        if callable(found):
            found = found(request)
        if isinstance(found, web.Response):
            return found
        if found is None:
            problem = {"title": "Not Found", "status": 404, "detail": f"{path} is not known"}
            return web.json_response(problem, status=404)
        return web.json_response(found)
