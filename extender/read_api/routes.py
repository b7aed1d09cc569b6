"""The read API's routes under `/api/v1/`: GET with entity tags and pages, and what-if, a POST.

An answer of many items is sent in parts, so that joining it takes no long turn on the event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from fastapi import Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from extender.errors import QueryError
from extender.read_api.bodies import (
    CapacityBody,
    ClusterBody,
    ListPage,
    MachineBody,
    NodeBody,
    PendingPod,
    PlacedPodBody,
)
from extender.read_api.groups import GroupBody
from extender.read_api.over_time import ChangeBody, HistoryBody
from extender.read_api.over_time.changes import MAX_CLIENTS
from extender.read_api.pacing import paced
from extender.read_api.paging import DEFAULT_LIMIT, MAX_LIMIT
from extender.read_api.what_if import MAX_WAITING, WhatIfAnswer, WhatIfBody

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Iterable

    from fastapi import FastAPI
    from starlette.types import Send

    from extender.read_api.paging import ItemsPage
    from extender.read_api.read_api import ReadApi

__all__ = ["add_read_api", "read_body"]

MAX_BODY_BYTES = 256 * 1024
"""A manifest has 1 to 10 KB, with what the API server notes in it. A JSON text is read in one turn
of the event loop, so its size bounds the turn."""
MAX_VALUES = 10_000
"""Values in a body, for the same reason: short ones take as long as long ones, a container with a
GPU 5 microseconds. A manifest has 60 to 600."""
BODY_TIMEOUT_S = 10.0
"""Seconds for a body to arrive: a what-if keeps its place meanwhile."""
SEND_TIMEOUT_S = 30.0
"""Seconds that a client of the stream of changes may take for an event."""
_JSON = "application/json"
_EVENTS = "text/event-stream"
_NO_CACHE = {"cache-control": "no-cache"}
_UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "As with the tag in `If-None-Match`."}
}

_Limit = Annotated[
    int, Query(ge=1, le=MAX_LIMIT, description=f"Most items of a page, 1..{MAX_LIMIT}.")
]
_Continue = Annotated[
    str | None, Query(alias="continue", description="`continue` of the page before.")
]
_Tag = Annotated[str | None, Header(alias="If-None-Match")]


def add_read_api(app: FastAPI, api: ReadApi) -> None:
    """Add the routes to an application that answers `HTTPException` with problem details."""
    _add_sums(app, api)
    _add_nodes(app, api)
    _add_pods(app, api)
    _add_groups(app, api)
    _add_over_time(app, api)
    _add_what_if(app, api)


def _add_sums(app: FastAPI, api: ReadApi) -> None:
    @app.get("/api/v1/cluster", response_model=ClusterBody, responses=_UNCHANGED)
    async def cluster(if_none_match: _Tag = None) -> Response:
        """Sums over the whole cluster."""
        now = await api.refresh()
        tag = api.cluster_tag(now)
        return _unchanged(if_none_match, tag) or _respond(api.cluster(now), tag)

    @app.get("/api/v1/capacity", response_model=CapacityBody, responses=_UNCHANGED)
    async def capacity(if_none_match: _Tag = None) -> Response:
        """What is free of each machine type: sets of 2, 4 and 8, and stranded GPUs since when."""
        now = await api.refresh()
        tag = api.tag(now)
        return _unchanged(if_none_match, tag) or _respond(api.capacity(now), tag)

    @app.get("/api/v1/machines", response_model=ListPage[MachineBody], responses=_UNCHANGED)
    async def machines(
        limit: _Limit = DEFAULT_LIMIT, after: _Continue = None, if_none_match: _Tag = None
    ) -> Response:
        """Machine types: GPUs, NICs, links with GB/s, and where to draw them."""
        now = await api.refresh()
        tag = api.tag(now)
        return _unchanged(if_none_match, tag) or await _list(
            api.machines(now, limit=limit, after=after), tag
        )


def _add_nodes(app: FastAPI, api: ReadApi) -> None:
    @app.get("/api/v1/nodes", response_model=ListPage[NodeBody], responses=_UNCHANGED)
    async def nodes(
        *,
        limit: _Limit = DEFAULT_LIMIT,
        after: _Continue = None,
        machine: Annotated[
            str | None, Query(description="Only nodes of this machine type: its name or digest.")
        ] = None,
        unhealthy: Annotated[bool, Query(description="Only nodes with unhealthy devices.")] = False,
        if_none_match: _Tag = None,
    ) -> Response:
        """Nodes by name: each GPU with state and owner, and the best free set by size."""
        now = await api.refresh()
        tag = api.tag(now)
        return _unchanged(if_none_match, tag) or await _list(
            api.nodes(now, limit=limit, after=after, machine=machine, is_unhealthy=unhealthy), tag
        )

    @app.get("/api/v1/nodes/{name}", response_model=NodeBody, responses=_UNCHANGED)
    async def node(name: str, if_none_match: _Tag = None) -> Response:
        """One node, also one that lists leave out since it serves no GPU."""
        now = await api.refresh()
        text = api.node(now, name)
        if text is None:
            raise HTTPException(404, f"node {name} is not known")
        tag = api.tag(now)
        return _unchanged(if_none_match, tag) or _respond(text, tag)


def _add_pods(app: FastAPI, api: ReadApi) -> None:
    @app.get("/api/v1/pods", response_model=ListPage[PlacedPodBody], responses=_UNCHANGED)
    async def pods(
        limit: _Limit = DEFAULT_LIMIT,
        after: _Continue = None,
        namespace: Annotated[str | None, Query(description="Only pods of this namespace.")] = None,
        node: Annotated[str | None, Query(description="Only pods on this node.")] = None,
        if_none_match: _Tag = None,
    ) -> Response:
        """Placed pods by node, then by name: their GPUs, GB/s and share, and the plan."""
        now = await api.refresh()
        tag = api.tag(now)
        return _unchanged(if_none_match, tag) or await _list(
            api.pods(now, limit=limit, after=after, namespace=namespace, node=node), tag
        )

    @app.get("/api/v1/pods/{namespace}/{name}", response_model=PlacedPodBody, responses=_UNCHANGED)
    async def pod(namespace: str, name: str, if_none_match: _Tag = None) -> Response:
        """One placed pod."""
        now = await api.refresh()
        text = await api.pod(now, namespace, name)
        if text is None:
            raise HTTPException(404, f"pod {namespace}/{name} has no GPUs on a node")
        tag = api.tag(now)
        return _unchanged(if_none_match, tag) or _respond(text, tag)

    @app.get("/api/v1/pending", response_model=ListPage[PendingPod], responses=_UNCHANGED)
    async def pending(
        limit: _Limit = DEFAULT_LIMIT, after: _Continue = None, if_none_match: _Tag = None
    ) -> Response:
        """The pods that wait, by name: why, since when, and what they request."""
        now, waiting = await api.refresh(), await api.refresh_pending()
        tag = api.tag(now, waiting.revision)
        return _unchanged(if_none_match, tag) or await _list(
            api.pending(now, waiting, limit=limit, after=after), tag
        )


def _add_groups(app: FastAPI, api: ReadApi) -> None:
    @app.get("/api/v1/groups", response_model=ListPage[GroupBody], responses=_UNCHANGED)
    async def groups(
        *,
        limit: _Limit = DEFAULT_LIMIT,
        after: _Continue = None,
        namespace: Annotated[
            str | None, Query(description="Only groups of this namespace.")
        ] = None,
        state: Annotated[
            Literal["waiting", "claimed", "bound"] | None,
            Query(description="Only groups in this state."),
        ] = None,
        if_none_match: _Tag = None,
    ) -> Response:
        """Groups by name: members with and without a node, domain, GB/s, or why they wait."""
        now = await api.refresh_groups()
        tag = api.tag(now.cluster, now.revision)
        return _unchanged(if_none_match, tag) or await _list(
            api.groups(now, limit=limit, after=after, namespace=namespace, state=state), tag
        )

    # Inferred groups, and those of a LeaderWorkerSet's replicas, have a slash in their names.
    @app.get(
        "/api/v1/groups/{namespace}/{name:path}", response_model=GroupBody, responses=_UNCHANGED
    )
    async def group(namespace: str, name: str, if_none_match: _Tag = None) -> Response:
        """One group."""
        now = await api.refresh_groups()
        found = now.texts.get(f"{namespace}/{name}")
        if found is None:
            raise HTTPException(404, f"group {namespace}/{name} has no member that is known")
        tag = api.tag(now.cluster, now.revision)
        return _unchanged(if_none_match, tag) or _respond(found.json, tag)


def _add_over_time(app: FastAPI, api: ReadApi) -> None:
    @app.get("/api/v1/history", response_model=HistoryBody, responses=_UNCHANGED)
    async def history(
        since_unix_s: Annotated[
            float, Query(ge=0, description="Only points from this time on, Unix seconds.")
        ] = 0.0,
        if_none_match: _Tag = None,
    ) -> Response:
        """The last 7 days by machine type, a point a minute; a restart loses them."""
        tag = api.tag(None, api.history.revision)
        chunks = api.history.chunks(since_unix_s)
        return _unchanged(if_none_match, tag) or _stream(chunks, tag)

    @app.get(
        "/api/v1/changes",
        response_class=_EventStream,
        responses={
            200: {"content": {_EVENTS: {"schema": TypeAdapter(ChangeBody).json_schema()}}},
        },
    )
    async def changes() -> Response:
        """Server-sent events: which nodes and groups changed, and whether pending pods did.

        An event `change` at once and then at most twice a second, its `id` the generation; a
        comment every 15 s. 503 where 64 streams are open.
        """
        client = await api.changes.open()
        if client is None:
            raise HTTPException(503, f"{MAX_CLIENTS} streams of changes are open, expected fewer")
        return _EventStream(api.changes.events(client), media_type=_EVENTS, headers=_NO_CACHE)


def _add_what_if(app: FastAPI, api: ReadApi) -> None:
    @app.post(
        "/api/v1/what-if",
        response_model=WhatIfAnswer,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {_JSON: {"schema": WhatIfBody.model_json_schema()}},
            }
        },
    )
    async def what_if(request: Request) -> Response:
        """Where pods would go if nodes were added or drained, and what would be left.

        Nothing is changed. 503 where 8 of these calls are under way.
        """
        try:
            parts = await api.what_ifs.answer(partial(read_body, request))
        except QueryError as error:
            raise HTTPException(400, str(error)) from error
        if parts is None:
            raise HTTPException(503, f"{MAX_WAITING} what-ifs are under way, expected fewer")
        return StreamingResponse(paced(parts), media_type=_JSON, headers=_NO_CACHE)


async def read_body(request: Request) -> bytes:
    """The body of a request; 413 where it is too large for one turn, 408 where it is late."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"body is over {MAX_BODY_BYTES} bytes")
    except TimeoutError as error:
        msg = f"body did not arrive in {BODY_TIMEOUT_S:g} s, expected it at once"
        raise HTTPException(408, msg) from error
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        msg = f"body has over {MAX_VALUES} values, expected fewer or shorter manifests"
        raise HTTPException(413, msg)
    return bytes(body)


class _EventStream(StreamingResponse):
    """A response without end; a client that takes nothing for `SEND_TIMEOUT_S` is dropped."""

    async def stream_response(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        events = cast("AsyncGenerator[bytes]", self.body_iterator)
        async with aclosing(events):
            async for event in events:
                try:
                    async with asyncio.timeout(SEND_TIMEOUT_S):
                        await send({"type": "http.response.body", "body": event, "more_body": True})
                except TimeoutError:
                    return  # the server closes the connection of a response that has no end
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _list(listing: Awaitable[ItemsPage], tag: str) -> Response:
    try:
        page = await listing
    except QueryError as error:
        raise HTTPException(400, str(error)) from error
    return _stream(page.chunks(), tag)


def _stream(chunks: Iterable[bytes], tag: str) -> Response:
    return StreamingResponse(paced(chunks), media_type=_JSON, headers=_headers(tag))


def _unchanged(if_none_match: str | None, tag: str) -> Response | None:
    """304 where the client has this answer already."""
    known = () if if_none_match is None else if_none_match.split(",")
    if any(one.strip().removeprefix("W/") in {tag, "*"} for one in known):
        return Response(status_code=304, headers=_headers(tag))
    return None


def _respond(body: bytes, tag: str) -> Response:
    return Response(body, media_type=_JSON, headers=_headers(tag))


def _headers(tag: str) -> dict[str, str]:
    return {"etag": tag, **_NO_CACHE}
