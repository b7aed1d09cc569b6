"""The extender's HTTP applications: the scheduler's verbs, and the routes for people and tools.

kube-scheduler's verbs are routes of raw bodies (`extender.http.verbs`); everything else, which
people, probes and Prometheus read, is FastAPI's, described at /openapi.json and /docs. Errors there
are problem details. Nothing here changes state, except that an embedded cluster's pods are created
and deleted.
"""

from __future__ import annotations

import json
import re
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request  # Request at runtime: FastAPI reads the signatures
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Router

from extender.engine.explanation import Explanation
from extender.http.responses import Problem, State
from extender.http.verbs import answer_now, status_of, verb_routes
from extender.page import add_page
from extender.protocol import Outcome, Verb
from extender.read_api import add_read_api, read_body
from extender.state import NodesState
from kube.client import Request as ApiRequest
from kube.errors import KubeError, Unreadable
from topology.cli.program import version
from topology.errors import quote
from topology.model import parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.http.verbs import Dependencies
    from kube.client import Requester

__all__ = ["create_app", "create_health_app", "create_read_app", "read_routes"]

_DESCRIPTION = (
    "What people and tools read. kube-scheduler's calls (`POST /filter`, `/prioritize`, "
    "`/preempt`, `/bind`) and `POST /explain` are described in docs/extender-wire.md, the routes "
    "under `/api/v1` in docs/read-api.md."
)
_JSON = "application/json"
_PROBLEM = "application/problem+json"
_SOON_S = 10.0
"""What a request to a server in memory is given; it takes none of it."""
_FAILS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What is wrong, in a sentence.",
        "content": {_PROBLEM: {"schema": Problem.model_json_schema()}},
    }
}


def create_app(deps: Dependencies) -> Router:
    """Make the application; it starts nothing."""
    return Router(verb_routes(deps), default=read_routes(deps))


def create_health_app(deps: Dependencies) -> FastAPI:
    """Make the application of the plain port: nothing that places pods."""
    app = FastAPI(title="Coterie extender health", openapi_url=None)
    _add_health_routes(app, deps)
    return app


def create_read_app(deps: Dependencies) -> FastAPI:
    """Make the application of `read_port`: the read API, which changes nothing."""
    app = _described_app()
    _add_read_api(app, deps)
    return app


def read_routes(deps: Dependencies) -> FastAPI:
    """The routes for people and tools, with their description."""
    app = _described_app()
    _add_health_routes(app, deps)
    _add_state_routes(app, deps)
    _add_explain_route(app, deps)
    if deps.embedded is not None:
        _add_embedded_route(app, deps.embedded)
    _add_read_api(app, deps)
    return app


def _described_app() -> FastAPI:
    """An application with a description, whose errors are problem details."""
    # FastAPI's own page of the description loads its scripts from the net: ours is plain HTML.
    app = FastAPI(
        title="Coterie extender",
        description=_DESCRIPTION,
        version=version(),
        docs_url=None,
        redoc_url=None,
        responses=_FAILS,
    )

    @app.exception_handler(HTTPException)
    async def problem(_request: Request, error: HTTPException) -> Response:
        return _problem(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        return _problem(HTTPException(400, "; ".join(map(_sentence, error.errors()))))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()))

    return app


def _add_read_api(app: FastAPI, deps: Dependencies) -> None:
    if deps.read_api is None:
        return
    add_read_api(app, deps.read_api)
    add_page(app)
    _add_explain_route(app, deps, prefix="/api/v1")

    @app.post("/api/v1/explain", response_model=Explanation)
    async def explain_pod(request: Request) -> Response:
        """The same for a pod that need not be in the cluster: its manifest, as JSON."""
        body = await read_body(request)
        return _answered(Verb.EXPLAIN, body, deps)


def _sentence(error: Mapping[str, Any]) -> str:
    """What is wrong with a parameter."""
    where, name = error["loc"][:2]
    return f"{where} parameter {name} is {quote(str(error['input']))}: {error['msg'].lower()}"


def _add_health_routes(app: FastAPI, deps: Dependencies) -> None:
    @app.head("/livez", include_in_schema=False)
    @app.get("/livez", response_class=PlainTextResponse)
    async def livez() -> str:
        """`ok` while the process serves."""
        return "ok"

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", response_class=PlainTextResponse)
    async def readyz() -> PlainTextResponse:
        """`ok` while state is complete and fresh, else 503 and what is missing."""
        if deps.is_ready():
            return PlainTextResponse("ok")
        return PlainTextResponse(deps.unready_because(), status_code=503)

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> PlainTextResponse:
        """`ok` while ready, or not while the API server is away; else 503: let another serve."""
        if deps.is_healthy():
            return PlainTextResponse("ok")
        return PlainTextResponse(deps.unready_because(), status_code=503)

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics as Prometheus text."""
        text = deps.metrics.render(is_ready=deps.is_ready(), now_s=deps.clock())
        return Response(text, media_type="text/plain; version=0.0.4")


def _add_state_routes(app: FastAPI, deps: Dependencies) -> None:
    engine = deps.gateway.engine

    @app.get("/state")
    async def state() -> State:
        """Generation, readiness and counts."""
        cluster = engine.cluster
        return State(
            generation=cluster.snapshot.generation,
            is_ready=deps.is_ready(),
            n_nodes=len(cluster.snapshot.nodes),
            n_pods=cluster.n_pods,
            devices={state.value: n for state, n in cluster.counts().items()},
            unschedulable={reason.label: n for reason, n in engine.pending.counts().items()},
        )

    @app.get("/state/nodes", response_model=NodesState)
    async def nodes() -> Response:
        """Every node's devices with state and owner; for people, not for frequent polling."""
        return Response(json.dumps(engine.cluster.as_json()), media_type=_JSON)


def _add_explain_route(app: FastAPI, deps: Dependencies, *, prefix: str = "") -> None:
    @app.get(f"{prefix}/explain/{{namespace}}/{{name}}", response_model=Explanation)
    async def explain(namespace: str, name: str) -> Response:
        """Each node's best set for a pod of the cluster, its GB/s, what is left, or why not."""
        try:
            pod = await deps.verbs.read_pod(namespace, name)
        except KubeError as error:
            raise HTTPException(502, f"pod {namespace}/{name} cannot be read: {error}") from error
        if pod is None:
            raise HTTPException(404, f"pod {namespace}/{name} is not in the cluster")
        return _answered(Verb.EXPLAIN, pod, deps)


def _add_embedded_route(app: FastAPI, server: Requester) -> None:
    pods = "/api/v1/namespaces/{namespace}/pods"

    @app.api_route(pods, methods=["GET", "POST"], include_in_schema=False)
    @app.api_route(f"{pods}/{{name}}", methods=["GET", "DELETE"], include_in_schema=False)
    async def embedded(request: Request) -> Response:
        """Pods of the embedded cluster, created, read and deleted as on a real one."""
        body = None
        if request.method == "POST":
            try:
                body = parse_object(await read_body(request))
            except Unreadable as error:
                raise HTTPException(400, f"the body is no JSON object: {error}") from error
        asked = ApiRequest(request.method, request.scope["path"], _SOON_S, body=body)
        try:
            answer = await server.request(asked)
        except KubeError as error:
            raise HTTPException(error.status, error.detail) from error
        return Response(answer, media_type=_JSON)


def _answered(verb: Verb, body: bytes, deps: Dependencies) -> Response:
    answer = answer_now(deps, verb, body)
    if answer.outcome is Outcome.FAILED:
        raise HTTPException(status_of(answer), json.loads(answer.body)["error"])
    return Response(answer.body, media_type=_JSON)


def _problem(error: HTTPException) -> Response:
    title = HTTPStatus(error.status_code).phrase
    body = Problem(title=title, status=error.status_code, detail=error.detail)
    return Response(
        body.model_dump_json(),
        status_code=error.status_code,
        headers=error.headers,
        media_type=_PROBLEM,
    )


def _page(description: dict[str, Any]) -> str:
    """The description as a page of HTML that loads nothing."""
    rows = "".join(
        f"<tr><td><code>{method.upper()} {escape(path)}</code></td>"
        f"<td>{_html(operation.get('description', ''))}</td></tr>\n"
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    )
    title = escape(description["info"]["title"])
    about = _html(description["info"]["description"])
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"</head>\n<body><h1>{title}</h1>\n<p>{about}</p>\n<table>\n{rows}</table>\n"
        '<p>Types of the responses: <a href="openapi.json">openapi.json</a></p></body></html>\n'
    )


def _html(text: str) -> str:
    """Text in which code stands between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
