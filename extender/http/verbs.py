"""kube-scheduler's verbs over HTTP: handlers, and the mapping of outcomes to status codes.

kube-scheduler takes only 200 for an answer and reads no other body: where a verb has an `Error`
field (filter, bind) failures are reported there, with 200. Prioritize has none; its failures are a
status, which the scheduler treats as "no scores".

Filter and prioritize never wait: everything they need is in memory. Bind and preempt wait for the
API server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from extender import logkeys
from extender.engine.events import VerbCalled
from extender.http.asgi import VerbResponse
from extender.protocol import Outcome, Reason, Verb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.engine import Gateway
    from extender.http.asgi import Handler
    from extender.observe import ExtenderMetrics
    from extender.protocol import Answer, TimedAnswer
    from extender.read_api import ReadApi
    from kube.client import Requester
    from kube.log import Logger

__all__ = ["Dependencies", "Verbs", "answer_now", "verb_handlers"]

_IN_BAND = frozenset({Verb.FILTER, Verb.BIND})
_STATUS = {
    Reason.STALE: 503,
    Reason.UNKNOWN_POD: 404,
    Reason.TOO_LARGE: 413,
}
"""Status of a failure where the verb has no error field; 400 for every other reason."""


class Verbs(Protocol):
    """What is needed of `extender.runtime.LiveExtender`."""

    async def bind(self, body: bytes) -> TimedAnswer:
        """Answer a bind call."""
        ...

    async def preempt(self, body: bytes) -> TimedAnswer:
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
    memory. `on_answer` is called with each answer and the plan that a bind wrote. `logs_answers` is
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
    on_answer: Callable[[Answer, str | None], None] | None = None
    logs_answers: bool = True
    read_api: ReadApi | None = None


def verb_handlers(deps: Dependencies) -> dict[str, Handler]:
    """The handler of each path."""
    at_once = (Verb.FILTER, Verb.PRIORITIZE, Verb.EXPLAIN)
    handlers = {f"/{verb.value}": _at_once(verb, deps) for verb in at_once}
    waiting = {Verb.BIND: deps.verbs.bind, Verb.PREEMPT: deps.verbs.preempt}
    return handlers | {f"/{verb.value}": _waiting(verb, act, deps) for verb, act in waiting.items()}


def _at_once(verb: Verb, deps: Dependencies) -> Handler:
    def handle(body: bytes | None) -> VerbResponse:
        return _too_large(verb, deps) if body is None else answer_now(verb, body, deps)

    return handle


def _waiting(
    verb: Verb,
    act: Callable[[bytes], Awaitable[TimedAnswer]],
    deps: Dependencies,
) -> Handler:
    async def handle(body: bytes | None) -> VerbResponse:
        if body is None:
            return _too_large(verb, deps)
        start_s = deps.timer()
        timed = await act(body)
        if verb is Verb.BIND and timed.own_s is not None:
            deps.metrics.observe_bind(timed.own_s)
        _tell(deps, timed.answer, deps.timer() - start_s, timed)
        return _reply(timed.answer)

    return handle


def answer_now(verb: Verb, body: bytes, deps: Dependencies) -> VerbResponse:
    """Answer a verb that waits for nothing remote; counted and logged like every answer."""
    start_s = deps.timer()
    answer = deps.gateway.handle(VerbCalled(verb, body, deps.clock()))
    _tell(deps, answer, deps.timer() - start_s)
    return _reply(answer)


def _too_large(verb: Verb, deps: Dependencies) -> VerbResponse:
    detail = f"request body is too large, expected at most {deps.body_limit_bytes} bytes"
    answer = deps.gateway.engine.failure(verb, Reason.TOO_LARGE, detail)
    _tell(deps, answer, 0.0)
    return _reply(answer)


def _reply(answer: Answer) -> VerbResponse:
    status = 200
    if answer.outcome is Outcome.FAILED and answer.verb not in _IN_BAND:
        status = _STATUS.get(answer.reason, 400) if answer.reason else 400
    return VerbResponse(status, answer.body)


def _tell(
    deps: Dependencies,
    answer: Answer,
    seconds: float,
    timed: TimedAnswer | None = None,
) -> None:
    deps.metrics.observe(answer, seconds)
    if deps.logs_answers:
        _log(deps, answer, seconds, timed)
    if deps.on_answer is not None:
        deps.on_answer(answer, timed.plan_text if timed else None)


def _log(deps: Dependencies, answer: Answer, seconds: float, timed: TimedAnswer | None) -> None:
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
    if timed is not None and timed.own_s is not None:
        shown["own_ms"] = round(timed.own_s * 1000, 3)
    deps.log.info(logkeys.ANSWERED, **shown)
