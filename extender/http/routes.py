"""The extender's HTTP surface: routes and the mapping of outcomes to status codes, nothing else.

kube-scheduler takes only 200 for an answer and reads no other body: where a verb has an `Error`
field (filter, bind) failures are told there, with 200. Prioritize has none; its failures are a
status, which the scheduler treats as "no scores". Every answer carries Content-Length, so that the
connection lives.

kube-scheduler's calls come on a way of their own (`extender.http.asgi`), what people and Prometheus
ask through FastAPI. Filter and prioritize never wait: everything they need is in memory. Bind and
preempt wait for the API server (`extender.ha.leader_routing`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fastapi import FastAPI
from starlette.responses import Response

from extender import logkeys
from extender.embedded import EmbeddedEngine
from extender.ha import FORWARDED_FOR, TIME_LEFT, Hop
from extender.http.asgi import VerbApp, VerbResponse
from extender.protocol import Outcome, Reason, Verb
from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from extender.decision_log import Desk
    from extender.embedded import EmbeddedCluster
    from extender.execution import Bound
    from extender.http.asgi import Handler, VerbRequest
    from extender.log import Logger
    from extender.observe import Metrics
    from extender.protocol import Answer

__all__ = ["Dependencies", "Verbs", "create_app", "create_health_app"]

_JSON = "application/json"
_IN_BAND = frozenset({Verb.FILTER, Verb.BIND})
_STATUS = {
    Reason.STALE: 503,
    Reason.UNKNOWN_POD: 404,
    Reason.TOO_LARGE: 413,
    Reason.NO_HOLDER: 503,
}
"""Status of a failure where the verb has no error field; 400 for every other reason."""


class Verbs(Protocol):
    """What is needed of `extender.ha.leader_routing`."""

    async def bind(self, body: bytes, hop: Hop | None = None) -> Bound:
        """Answer a bind call."""
        ...

    async def preempt(self, body: bytes, hop: Hop | None = None) -> Bound:
        """Answer a preempt call."""
        ...

    async def read_pod(self, namespace: str, name: str) -> bytes | None:
        """The JSON of a pod; None where it is not there. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the routes stand on. `clock` gives the engine's time, `timer` monotonic seconds.

    `verbs` is None over an embedded cluster, which answers bind at once. `is_ready` says whether
    to be asked at all, `unready_because` why not. `on_answer` is shown each answer, with the plan
    that a bind wrote. `logs_answers` False: the log drops what is INFO, so answers are not put into
    words for it.
    """

    desk: Desk
    metrics: Metrics
    log: Logger
    clock: Callable[[], float]
    timer: Callable[[], float]
    body_limit_bytes: int
    is_ready: Callable[[], bool]
    unready_because: Callable[[], str] = lambda: "state is not fresh"
    verbs: Verbs | None = None
    on_answer: Callable[[Answer, str | None], None] | None = None
    logs_answers: bool = True


def create_app(deps: Dependencies) -> ASGIApp:
    """Make the application; it starts nothing."""
    app = FastAPI(title="Coterie extender", openapi_url=None)
    calls = {
        f"/{verb.value}": _at_once(verb, deps)
        for verb in (Verb.FILTER, Verb.PRIORITIZE, Verb.EXPLAIN)
    }
    _add_health_routes(app, deps)
    app.add_route("/state", _state(deps), methods=["GET"])
    if deps.verbs is not None:
        calls[f"/{Verb.BIND.value}"] = _waiting(Verb.BIND, deps.verbs.bind, deps)
        calls[f"/{Verb.PREEMPT.value}"] = _waiting(Verb.PREEMPT, deps.verbs.preempt, deps)
        app.add_route("/state/nodes", _state_nodes(deps), methods=["GET"])
        route = _explain_pod(deps.verbs, deps)
        app.add_route("/explain/{namespace}/{name}", route, methods=["GET"])
    elif isinstance(deps.desk.engine, EmbeddedEngine):
        calls[f"/{Verb.BIND.value}"] = _at_once(Verb.BIND, deps)
        cluster = deps.desk.engine.cluster
        app.add_route("/embedded/state", _embedded_state(cluster), methods=["GET"])
        app.add_route("/embedded/pods/{uid}", _embedded_pod(cluster), methods=["GET"])
        app.add_route("/embedded/pods/{uid}", _end_route(deps), methods=["DELETE"])
    return VerbApp(calls, app, body_limit_bytes=deps.body_limit_bytes)


def create_health_app(deps: Dependencies) -> FastAPI:
    """Make the application of the plain port: nothing that places pods."""
    app = FastAPI(title="Coterie extender health", openapi_url=None)
    _add_health_routes(app, deps)
    return app


def _add_health_routes(app: FastAPI, deps: Dependencies) -> None:
    """Add what the kubelet and Prometheus ask."""
    app.add_route("/livez", _livez, methods=["GET"])
    app.add_route("/readyz", _readyz(deps), methods=["GET"])
    app.add_route("/metrics", _metrics(deps), methods=["GET"])


def _at_once(verb: Verb, deps: Dependencies) -> Handler:
    def handle(call: VerbRequest) -> VerbResponse:
        if call.body is None:
            return _too_large(verb, deps)
        return _answer(verb, call.body, deps)

    return handle


def _waiting(
    verb: Verb, act: Callable[[bytes, Hop | None], Awaitable[Bound]], deps: Dependencies
) -> Handler:
    async def handle(call: VerbRequest) -> VerbResponse:
        if call.body is None:
            return _too_large(verb, deps)
        start_s = deps.timer()
        bound = await act(call.body, _hop(call))
        if verb is Verb.BIND:
            deps.metrics.observe_bind(bound.own_s)
        _tell(deps, bound.answer, deps.timer() - start_s, bound)
        return _reply(bound.answer)

    return handle


def _hop(call: VerbRequest) -> Hop | None:
    """Whether another replica handed the call on; a header that is no number leaves no time."""
    by = call.header(FORWARDED_FOR)
    if by is None:
        return None
    try:
        left_s = float(call.header(TIME_LEFT) or "0")
    except ValueError:
        left_s = 0.0
    return Hop(by, left_s)


def _answer(verb: Verb, body: bytes, deps: Dependencies) -> VerbResponse:
    start_s = deps.timer()
    answer = deps.desk.answer(verb, body, deps.clock())
    _tell(deps, answer, deps.timer() - start_s)
    return _reply(answer)


def _too_large(verb: Verb, deps: Dependencies) -> VerbResponse:
    detail = f"request body is too large, expected at most {deps.body_limit_bytes} bytes"
    answer = deps.desk.engine.failure(verb, Reason.TOO_LARGE, detail)
    _tell(deps, answer, 0.0)
    return _reply(answer)


def _reply(answer: Answer) -> VerbResponse:
    status = 200
    if answer.outcome is Outcome.FAILED and answer.verb not in _IN_BAND:
        status = _STATUS.get(answer.reason, 400) if answer.reason else 400
    return VerbResponse(status, answer.body)


_Route: TypeAlias = "Callable[[Request], Awaitable[Response]]"


def _end_route(deps: Dependencies) -> _Route:
    async def handle(request: Request) -> Response:
        uid: str = request.path_params["uid"]
        return _response(_answer(Verb.END, uid.encode(), deps))

    return handle


def _response(reply: VerbResponse) -> Response:
    return Response(reply.body, status_code=reply.status, media_type=_JSON)


def _explain_pod(verbs: Verbs, deps: Dependencies) -> _Route:
    async def handle(request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        try:
            pod = await verbs.read_pod(namespace, name)
        except KubeError as error:
            return _json({"error": str(error)}, status=502)
        if pod is None:
            return _json({"error": f"pod {namespace}/{name} is not there"}, status=404)
        return _response(_answer(Verb.EXPLAIN, pod, deps))

    return handle


def _tell(deps: Dependencies, answer: Answer, seconds: float, bound: Bound | None = None) -> None:
    deps.metrics.observe(answer, seconds)
    if deps.logs_answers:
        _log(deps, answer, seconds, bound)
    if deps.on_answer is not None:
        deps.on_answer(answer, bound.plan_text if bound else None)


def _log(deps: Dependencies, answer: Answer, seconds: float, bound: Bound | None) -> None:
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
        logkeys.N_REPLANS: answer.n_replans,
        logkeys.PLACED_GBYTES_PER_S: answer.placed_gbytes_per_s,
        logkeys.WARNINGS: list(answer.warnings),
    }
    told = {key: value for key, value in fields.items() if value not in (None, "", 0, [])}
    told[logkeys.GENERATION] = answer.generation
    told[logkeys.MILLISECONDS] = round(seconds * 1000, 3)
    if bound is not None:
        told[logkeys.OWN_MILLISECONDS] = round(bound.own_s * 1000, 3)
    deps.log.info(logkeys.ANSWERED, **told)


async def _livez(_request: Request) -> Response:
    return Response("ok", media_type="text/plain")


def _readyz(deps: Dependencies) -> _Route:
    async def handle(_request: Request) -> Response:
        if deps.is_ready():
            return Response("ok", media_type="text/plain")
        return Response(deps.unready_because(), status_code=503, media_type="text/plain")

    return handle


def _metrics(deps: Dependencies) -> _Route:
    async def handle(_request: Request) -> Response:
        return Response(deps.metrics.render(), media_type="text/plain; version=0.0.4")

    return handle


def _state(deps: Dependencies) -> _Route:
    async def handle(_request: Request) -> Response:
        cluster = deps.desk.engine.cluster
        return _json(
            {
                "generation": cluster.snapshot.generation,
                "is_ready": deps.is_ready(),
                "n_nodes": len(cluster.snapshot.nodes),
                "n_pods": cluster.n_pods,
                "devices": {state.value: n for state, n in cluster.counts().items()},
                "parked": {
                    reason.label: n for reason, n in deps.desk.engine.parked.counts().items()
                },
            }
        )

    return handle


def _state_nodes(deps: Dependencies) -> _Route:
    async def handle(_request: Request) -> Response:
        return _json(deps.desk.engine.cluster.as_json())

    return handle


def _embedded_state(cluster: EmbeddedCluster) -> _Route:
    async def handle(_request: Request) -> Response:
        return _json(cluster.as_json())

    return handle


def _embedded_pod(cluster: EmbeddedCluster) -> _Route:
    async def handle(request: Request) -> Response:
        pod = cluster.bound(request.path_params["uid"])
        if pod is None:
            return _json({"error": "no such pod"}, status=404)
        return _json(pod.as_json())

    return handle


def _json(content: object, *, status: int = 200) -> Response:
    return Response(json.dumps(content), status_code=status, media_type=_JSON)
