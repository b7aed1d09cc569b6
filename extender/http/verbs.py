"""kube-scheduler's verbs over HTTP: routes of raw bodies, and the status of each answer.

Three such calls are made for each pod: a raw body comes in and bytes go out, so they pass none of
the middlewares and objects that a path operation of FastAPI has (ADR 0040 has the figures).

kube-scheduler takes only 200 for an answer and reads no other body: where a verb has an `Error`
field (filter, bind) failures are reported there, with 200. Prioritize has none; its failures are a
status, which the scheduler treats as "no scores".

Filter and prioritize never wait: everything they need is in memory. Bind and preempt wait for the
API server.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from starlette.routing import Route

from extender import logkeys
from extender.engine.events import VerbCalled
from extender.protocol import Answer, Outcome, Reason, Verb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from extender.engine import Gateway
    from extender.observe import ExtenderMetrics
    from extender.read_api import ReadApi
    from kube.client import Requester
    from kube.log import Logger

__all__ = [
    "Dependencies",
    "Handler",
    "Verbs",
    "answer_now",
    "status_of",
    "verb_route",
    "verb_routes",
]

Handler: TypeAlias = "Callable[[bytes | None], Answer | Awaitable[Answer]]"
"""An answer at once, or one to await; of the body, None where it was larger than the limit."""

_IN_BAND = frozenset({Verb.FILTER, Verb.BIND})
_STATUS = {
    Reason.STALE: 503,
    Reason.UNKNOWN_POD: 404,
    Reason.TOO_LARGE: 413,
}
"""Status of a failure where the verb has no error field; 400 for every other reason."""


class Verbs(Protocol):
    """What is needed of `extender.runtime.LiveExtender`."""

    async def bind(self, body: bytes) -> Answer:
        """Answer a bind call."""
        ...

    async def preempt(self, body: bytes) -> Answer:
        """Answer a preempt call."""
        ...

    async def read_pod(self, namespace: str, name: str) -> bytes | None:
        """The JSON of a pod; None where it is not there. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the routes need. `clock` gives the engine's time, `timer` monotonic seconds.

    `is_ready` returns whether requests should come at all, `unready_because` why not; `is_healthy`
    whether another extender could do no better. `embedded` is the API server where that is in
    memory. `on_answer` is called with each answer. `logs_answers` is
    False where the log drops INFO. `read_api` is None where there is none.
    """

    gateway: Gateway
    metrics: ExtenderMetrics
    log: Logger
    clock: Callable[[], float]
    timer: Callable[[], float]
    body_limit_bytes: int
    is_ready: Callable[[], bool]
    verbs: Verbs
    unready_because: Callable[[], str] = lambda: "state is not fresh"
    is_healthy: Callable[[], bool] = lambda: True
    embedded: Requester | None = None
    on_answer: Callable[[Answer], None] | None = None
    logs_answers: bool = True
    read_api: ReadApi | None = None


def verb_routes(deps: Dependencies) -> list[Route]:
    """Each verb's route."""
    handlers: dict[Verb, Handler] = {
        verb: partial(answer_now, deps, verb)
        for verb in (Verb.FILTER, Verb.PRIORITIZE, Verb.EXPLAIN)
    }
    for verb, act in ((Verb.BIND, deps.verbs.bind), (Verb.PREEMPT, deps.verbs.preempt)):
        handlers[verb] = partial(_answer_later, deps, verb, act)
    limit = deps.body_limit_bytes
    return [
        verb_route(f"/{verb.value}", handle, body_limit_bytes=limit)
        for verb, handle in handlers.items()
    ]


def verb_route(path: str, handle: Handler, *, body_limit_bytes: int) -> Route:
    """A route for POST."""
    return Route(path, _Endpoint(handle, body_limit_bytes), methods=["POST"])


class _CallerLeft(Exception):
    """The caller disconnected before all was sent."""


class _Endpoint:
    """An ASGI application: a raw body in, an answer out.

    What is over the limit is read all the same, since kube-scheduler reads no answer before it has
    sent everything. Content-Length keeps the connection. A caller that has gone gets no answer.
    """

    def __init__(self, handle: Handler, body_limit_bytes: int) -> None:
        self._handle = handle
        self._body_limit_bytes = body_limit_bytes

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = self._handle(await _body(receive, self._body_limit_bytes))
            if not isinstance(answer, Answer):
                answer = await _watched(answer, receive)
        except _CallerLeft:
            return
        status = status_of(answer) if answer.outcome is Outcome.FAILED else 200
        length = (b"content-length", b"%d" % len(answer.body))
        headers = [(b"content-type", b"application/json"), length]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


async def _body(receive: Receive, limit_bytes: int) -> bytes | None:
    """Read a body to its end; None for one that is too large. Raises `_CallerLeft`."""
    chunks: list[bytes] = []
    n_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _CallerLeft
        chunk: bytes = message.get("body", b"")
        n_bytes += len(chunk)
        if n_bytes <= limit_bytes:
            chunks.append(chunk)
        else:
            chunks.clear()
        if not message.get("more_body", False):
            return b"".join(chunks) if n_bytes <= limit_bytes else None


async def _watched(answer: Awaitable[Answer], receive: Receive) -> Answer:
    """The answer; what makes it is cancelled when the caller leaves, and may go on all the same.

    Raises `_CallerLeft` where it does not.
    """
    task = asyncio.ensure_future(answer)
    left = asyncio.ensure_future(receive())  # after the body nothing else comes
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_over = task.done()
        (left if is_over else task).cancel()
    try:
        return await task
    except asyncio.CancelledError:
        if is_over:
            raise
        raise _CallerLeft from None


def answer_now(deps: Dependencies, verb: Verb, body: bytes | None) -> Answer:
    """Answer a verb that waits for nothing remote; counted and logged like every answer."""
    if body is None:
        return _too_large(verb, deps)
    start_s = deps.timer()
    answer = deps.gateway.handle(VerbCalled(verb, body, deps.clock()))
    _report(deps, answer, deps.timer() - start_s)
    return answer


async def _answer_later(
    deps: Dependencies,
    verb: Verb,
    act: Callable[[bytes], Awaitable[Answer]],
    body: bytes | None,
) -> Answer:
    if body is None:
        return _too_large(verb, deps)
    start_s = deps.timer()
    answer = await act(body)
    _report(deps, answer, deps.timer() - start_s)
    return answer


def _too_large(verb: Verb, deps: Dependencies) -> Answer:
    detail = f"request body is too large, expected at most {deps.body_limit_bytes} bytes"
    answer = deps.gateway.engine.failure(verb, Reason.TOO_LARGE, detail)
    _report(deps, answer, 0.0)
    return answer


def status_of(answer: Answer) -> int:
    """The HTTP status of a failure: 200 where the caller reads what is wrong in the body."""
    if answer.verb in _IN_BAND:
        return 200
    return _STATUS.get(answer.reason, 400) if answer.reason else 400


def _report(deps: Dependencies, answer: Answer, seconds: float) -> None:
    deps.metrics.observe(answer, seconds)
    if deps.logs_answers:
        _log(deps, answer, seconds)
    if deps.on_answer is not None:
        deps.on_answer(answer)


def _log(deps: Dependencies, answer: Answer, seconds: float) -> None:
    fields: dict[str, object] = {
        "verb": answer.verb.value,
        "outcome": answer.outcome.value,
        "reason": answer.reason.label if answer.reason else None,
        "detail": answer.detail,
        "pod": answer.pod,
        "pod_uid": answer.pod_uid,
        "node": answer.node,
        "n_nodes": answer.n_nodes,
        "n_named": answer.n_named,
        "n_replans": answer.n_replans,
        "placed_gbytes_per_s": answer.placed_gbytes_per_s,
        "warnings": list(answer.warnings),
    }
    shown = {key: value for key, value in fields.items() if value not in (None, "", 0, [])}
    shown |= {"generation": answer.generation, "ms": round(seconds * 1000, 3)}
    if answer.own_s is not None:
        shown["own_ms"] = round(answer.own_s * 1000, 3)
    deps.log.info(logkeys.ANSWERED, **shown)
