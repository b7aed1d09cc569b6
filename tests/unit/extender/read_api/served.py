"""The read API served over engines of the tests, and calls to it."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any

import httpx

from extender.engine import Gateway
from extender.engine.events import PodDeleted
from extender.http.routes import create_app, create_read_app
from extender.http.verbs import Dependencies
from extender.observe import ExtenderMetrics
from extender.protocol import Verb
from extender.read_api import ReadApi
from tests.unit.extender.engines import Shell
from tests.unit.extender.pods import args, binding, pod
from tests.unit.extender.shells import Log

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from extender.engine import Engine

__all__ = ["ServedReads"]


class ServedReads:
    """An application with the read API, and the time, which a test moves."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now_s = 1000.0
        self.api = ReadApi(
            engine, clock=lambda: self.now_s, is_ready=lambda: engine.is_ready(self.now_s)
        )
        gateway = Gateway(engine)
        self.deps = Dependencies(
            gateway=gateway,
            verbs=Shell(gateway),
            metrics=ExtenderMetrics(engine),
            log=Log(),
            clock=lambda: self.now_s,
            timer=lambda: 0.0,
            body_limit_bytes=100_000,
            is_ready=lambda: engine.is_ready(self.now_s),
            read_api=self.api,
        )

    @cached_property
    def app(self) -> ASGIApp:
        """What the scheduler's port serves."""
        return create_app(self.deps)

    @cached_property
    def read_app(self) -> ASGIApp:
        """What `read_port` serves."""
        return create_read_app(self.deps)

    def call(
        self, path: str, *, method: str = "GET", app: Any = None, content: bytes = b"", **more: str
    ) -> httpx.Response:
        """One request; `more` are headers, by their names with underscores."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}

        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=app or self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                return await client.request(method, path, headers=headers, content=content)

        return asyncio.run(go())

    def get(self, path: str) -> Any:
        """The JSON of a route under /api/v1."""
        response = self.call(f"/api/v1/{path}")
        assert response.status_code == 200, response.text
        return response.json()

    @staticmethod
    def filter_call(
        n_gpus: int, uid: str, nodes: list[str], **annotations: str
    ) -> tuple[Verb, bytes]:
        """What the engine is given for a filter call."""
        return Verb.FILTER, args(pod(n_gpus, uid=uid, **annotations), nodes)

    @staticmethod
    def bind_call(uid: str, node: str) -> tuple[Verb, bytes]:
        """What the engine is given for a bind call."""
        return Verb.BIND, binding(uid, node)

    def filter(self, n_gpus: int, uid: str, nodes: list[str], **annotations: str) -> Any:
        """A filter call for a pod."""
        body = args(pod(n_gpus, uid=uid, **annotations), nodes)
        return self.call("/filter", method="POST", content=body).json()

    def end(self, uid: str) -> None:
        """The watch no longer shows a pod."""
        self.deps.gateway.handle(PodDeleted(uid))

    def place(self, n_gpus: int, uid: str, node: str, **annotations: str) -> None:
        """A pod goes through filter and bind."""
        assert self.filter(n_gpus, uid, [node], **annotations)["NodeNames"] == [node]
        bound = self.call("/bind", method="POST", content=binding(uid, node))
        assert bound.json() == {"Error": ""}
