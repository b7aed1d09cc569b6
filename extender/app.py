"""The extender's HTTP surface: routes and the mapping of outcomes to status codes, nothing else.

kube-scheduler takes only 200 for an answer and reads no other body: where a verb has an `Error`
field (filter, bind) failures are told there, with 200. Prioritize has none; its failures are a
status, which the scheduler treats as "no scores". Every answer carries Content-Length, so that the
connection lives.

Handlers read the body and then never wait: everything they need is in memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from extender import logkeys
from extender.decisions import RECORDED
from extender.engine import Outcome, Verb
from extender.errors import DecisionLogError
from extender.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.decisions import DecisionLog
    from extender.engine import Answer, Engine
    from extender.metrics import Metrics

__all__ = ["Dependencies", "Logger", "create_app"]

_JSON = "application/json"
_IN_BAND = frozenset({Verb.FILTER, Verb.BIND})
_STATUS = {
    Reason.STALE: 503,
    Reason.UNKNOWN_POD: 404,
    Reason.TOO_LARGE: 413,
}
"""Status of a failure where the verb has no error field; 400 for every other reason."""


class Logger(Protocol):
    """What we need of structlog's bound logger."""

    def info(self, event: str, **fields: object) -> object:
        """Log an event."""
        ...

    def warning(self, event: str, **fields: object) -> object:
        """Log a fault."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the routes stand on. `clock` gives Unix seconds, `timer` monotonic seconds."""

    engine: Engine
    metrics: Metrics
    log: Logger
    clock: Callable[[], float]
    timer: Callable[[], float]
    body_limit_bytes: int
    decision_log: DecisionLog | None = None


def create_app(deps: Dependencies) -> FastAPI:
    """Make the application; it starts nothing."""
    app = FastAPI(title="Coterie extender", openapi_url=None)
    for verb in (Verb.FILTER, Verb.PRIORITIZE, Verb.BIND, Verb.EXPLAIN):
        app.add_route(f"/{verb.value}", _verb_route(verb, deps), methods=["POST"])
    app.add_route("/livez", _livez, methods=["GET"])
    app.add_route("/readyz", _readyz(deps), methods=["GET"])
    app.add_route("/metrics", _metrics(deps), methods=["GET"])
    app.add_route("/state", _state(deps), methods=["GET"])
    app.add_route("/embedded/state", _embedded_state(deps), methods=["GET"])
    app.add_route("/embedded/pods/{uid}", _embedded_pod(deps), methods=["GET"])
    app.add_route("/embedded/pods/{uid}", _end_route(deps), methods=["DELETE"])
    return app


def _verb_route(verb: Verb, deps: Dependencies) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            body = await _body(request, deps.body_limit_bytes)
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            detail = f"request body is too large, expected at most {deps.body_limit_bytes} bytes"
            answer = deps.engine.failure(verb, Reason.TOO_LARGE, detail)
            deps.metrics.observe(answer, 0.0)
            _log(deps, answer, 0.0)
            return _respond(answer)
        return _answer(verb, body, deps)

    return handle


def _end_route(deps: Dependencies) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        uid: str = request.path_params["uid"]
        return _answer(Verb.END, uid.encode(), deps)

    return handle


def _answer(verb: Verb, body: bytes, deps: Dependencies) -> Response:
    now_s, start_s = deps.clock(), deps.timer()
    answer = deps.engine.answer(verb, body, now_s)
    seconds = deps.timer() - start_s
    deps.metrics.observe(answer, seconds)
    _log(deps, answer, seconds)
    if deps.decision_log is not None and verb in RECORDED:
        try:
            deps.decision_log.record(verb, body, now_s, answer)
        except DecisionLogError as error:
            deps.log.warning(logkeys.DECISION_LOG_ENDED, **{logkeys.DETAIL: str(error)})
    return _respond(answer)


def _respond(answer: Answer) -> Response:
    status = 200
    if answer.outcome is Outcome.FAILED and answer.verb not in _IN_BAND:
        status = _STATUS.get(answer.reason, 400) if answer.reason else 400
    return Response(answer.body, status_code=status, media_type=_JSON)


def _log(deps: Dependencies, answer: Answer, seconds: float) -> None:
    fields: dict[str, object] = {
        logkeys.VERB: answer.verb.value,
        logkeys.OUTCOME: answer.outcome.value,
        logkeys.REASON: answer.reason.label if answer.reason else None,
        logkeys.DETAIL: answer.detail,
        logkeys.POD: answer.pod,
        logkeys.POD_UID: answer.pod_uid,
        logkeys.NODE: answer.node,
        logkeys.N_NODES: answer.n_nodes,
        logkeys.N_NAMED: answer.n_named,
        logkeys.PLACED_GBYTES_PER_S: answer.placed_gbytes_per_s,
        logkeys.WARNINGS: list(answer.warnings),
    }
    told = {key: value for key, value in fields.items() if value not in (None, "", 0, [])}
    told[logkeys.GENERATION] = answer.generation
    told[logkeys.MILLISECONDS] = round(seconds * 1000, 3)
    deps.log.info(logkeys.ANSWERED, **told)


async def _body(request: Request, limit: int) -> bytes | None:
    """The whole body, or None where it is larger than `limit` (read to its end, not kept)."""
    chunks: list[bytes] = []
    n_bytes = 0
    async for chunk in request.stream():
        n_bytes += len(chunk)
        if n_bytes <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
    return b"".join(chunks) if n_bytes <= limit else None


async def _livez(_request: Request) -> Response:
    return Response("ok", media_type="text/plain")


def _readyz(deps: Dependencies) -> Callable[[Request], Awaitable[Response]]:
    async def handle(_request: Request) -> Response:
        if deps.engine.is_ready(deps.clock()):
            return Response("ok", media_type="text/plain")
        return Response("state is not fresh", status_code=503, media_type="text/plain")

    return handle


def _metrics(deps: Dependencies) -> Callable[[Request], Awaitable[Response]]:
    async def handle(_request: Request) -> Response:
        return Response(deps.metrics.render(), media_type="text/plain; version=0.0.4")

    return handle


def _state(deps: Dependencies) -> Callable[[Request], Awaitable[Response]]:
    async def handle(_request: Request) -> Response:
        cluster = deps.engine.cluster
        told = {
            "generation": cluster.snapshot.generation,
            "is_ready": deps.engine.is_ready(deps.clock()),
            "n_nodes": len(cluster.snapshot.nodes),
            "n_pods": cluster.n_pods,
            "devices": {state.value: n for state, n in cluster.counts().items()},
        }
        return Response(json.dumps(told), media_type=_JSON)

    return handle


def _embedded_state(deps: Dependencies) -> Callable[[Request], Awaitable[Response]]:
    async def handle(_request: Request) -> Response:
        return Response(json.dumps(deps.engine.cluster.as_json()), media_type=_JSON)

    return handle


def _embedded_pod(deps: Dependencies) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        pod = deps.engine.cluster.pod(request.path_params["uid"])
        if pod is None:
            told = json.dumps({"error": "no such pod"})
            return Response(told, status_code=404, media_type=_JSON)
        return Response(json.dumps(pod.as_json()), media_type=_JSON)

    return handle
