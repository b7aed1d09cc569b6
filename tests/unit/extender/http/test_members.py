"""Filter for members of groups is another replica's where that one holds the Lease."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from extender.engine import Gateway
from extender.ha import FORWARDED_FOR, TIME_LEFT, ForwardedCall
from extender.http.routes import create_app
from extender.http.verbs import Dependencies
from extender.observe import ExtenderMetrics
from extender.protocol import Answer, Outcome, Verb, messages, parse_pod
from tests.unit.extender.engines import engine
from tests.unit.extender.pods import args, pod
from tests.unit.extender.shells import FakeTime, Log

if TYPE_CHECKING:
    from collections.abc import Mapping

NODES = ["dgx-1-v100-0"]
HOLDER_S = 2.0
MEMBER = args(pod(1, group="g", group_size="2"), NODES)


class Elsewhere:
    """The replicas as the routes see them."""

    def __init__(self, answer: Answer | None, time: FakeTime | None = None) -> None:
        self.answer = answer
        self.time = time or FakeTime()
        self.calls: list[tuple[bytes, ForwardedCall | None]] = []

    async def filter_member(self, body: bytes, forwarded: ForwardedCall | None = None) -> Any:
        self.calls.append((body, forwarded))
        self.time.now_s += HOLDER_S
        return self.answer

    async def bind(self, body: bytes, forwarded: ForwardedCall | None = None) -> Any:
        raise AssertionError(body, forwarded)

    async def preempt(self, body: bytes, forwarded: ForwardedCall | None = None) -> Any:
        raise AssertionError(body, forwarded)

    async def read_pod(self, namespace: str, name: str) -> Any:
        raise AssertionError(namespace, name)


def post(
    elsewhere: Elsewhere,
    body: bytes,
    headers: Any = None,
    *,
    waiting: Mapping[str, Any] | None = None,
    told: list[Answer] | None = None,
    **rules: Any,
) -> tuple[httpx.Response, Log]:
    """One filter call, and what was logged; `waiting` is a member that the watch has shown.

    `told` gets the answers that Events are made from.
    """
    answers = [] if told is None else told
    here, log = engine(**rules), Log()
    if waiting is not None:
        member = messages.decode(messages.WirePod, json.dumps(waiting).encode())
        here.groups.see(parse_pod(member, here.rules.resources, here.rules.group_kinds), 0.0)
    app = create_app(
        Dependencies(
            gateway=Gateway(here),
            metrics=ExtenderMetrics(here),
            log=log,
            clock=lambda: 0.0,
            timer=elsewhere.time,
            body_limit_bytes=100_000,
            is_ready=lambda: True,
            verbs=elsewhere,
            on_answer=lambda answer, _plan: answers.append(answer),
        )
    )

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.post("/filter", content=body, headers=headers)

    return asyncio.run(go()), log


def test_the_answer_of_the_holder_is_passed_on():
    """As it came; the log says where the call went."""
    answer = Answer(Verb.FILTER, Outcome.FORWARDED, b'{"NodeNames":["n9"]}', 1, detail="to b")
    elsewhere = Elsewhere(answer)
    response, log = post(elsewhere, MEMBER)
    assert (response.status_code, response.json()) == (200, {"NodeNames": ["n9"]})
    assert elsewhere.calls == [(MEMBER, None)]
    assert [line["outcome"] for line in log.lines] == ["forwarded"]


def test_the_holder_answers_what_another_replica_forwards():
    """From its own state."""
    elsewhere = Elsewhere(None)
    response, log = post(elsewhere, MEMBER, {FORWARDED_FOR: "http://b", TIME_LEFT: "1.5"})
    assert elsewhere.calls == [(MEMBER, ForwardedCall("http://b", 1.5))]
    assert "waits for its group" in json.dumps(response.json())
    assert [line["outcome"] for line in log.lines] == ["refused"]


@pytest.mark.parametrize(
    "body", [args(pod(1), NODES), b"[" * 200_000], ids=["no member", "too large"]
)
def test_other_calls_are_answered_at_once(body):
    """Every replica names nodes for a pod without a group."""
    elsewhere = Elsewhere(None)
    response, _ = post(elsewhere, body)
    assert (response.status_code, elsewhere.calls) == (200, [])


def test_while_a_group_waits_every_pod_is_the_holders():
    """It alone knows what is claimed: binds to the nodes that we would name fail there."""
    body = args(pod(1), NODES)
    answer = Answer(Verb.FILTER, Outcome.FORWARDED, b'{"NodeNames":["n9"]}', 1, detail="to b")
    elsewhere = Elsewhere(answer)
    response, _ = post(elsewhere, body, waiting=json.loads(MEMBER)["Pod"])
    assert response.json() == {"NodeNames": ["n9"]}
    assert elsewhere.calls == [(body, None)]


def test_with_patience_every_pod_is_the_holders():
    """It alone knows which nodes are reserved."""
    body = args(pod(1), NODES)
    answer = Answer(Verb.FILTER, Outcome.FORWARDED, b'{"NodeNames":["n9"]}', 1, detail="to b")
    elsewhere = Elsewhere(answer)
    response, _ = post(elsewhere, body, group_patience_s=60.0)
    assert response.json() == {"NodeNames": ["n9"]}
    assert elsewhere.calls == [(body, None)]


@pytest.mark.parametrize(
    ("body", "is_here"),
    [
        pytest.param(args(pod(1), NODES), True, id="a pod without a group is named nodes here"),
        pytest.param(MEMBER, False, id="a member waits for the holder"),
    ],
)
def test_where_the_holder_does_not_answer_only_members_wait(body, is_here):
    """A fail-over takes seconds, in which other pods are placed as without patience."""
    failed = Answer(Verb.FILTER, Outcome.FAILED, b'{"Error":"no holder"}', 1)
    response, _ = post(Elsewhere(failed), body, group_patience_s=60.0)
    assert (response.json().get("NodeNames") == NODES) is is_here
    assert (response.json().get("Error") == "no holder") is not is_here


def test_the_wait_for_a_holder_that_does_not_answer_shows():
    """No pod of the scheduler is placed meanwhile, and the time here is a millisecond."""
    why = "no replica that may bind can be reached: replica http://b cannot be reached"
    failed = Answer(Verb.FILTER, Outcome.FAILED, b'{"Error":"no holder"}', 1, detail=why)
    _, log = post(Elsewhere(failed), args(pod(1), NODES), group_patience_s=60.0)
    (line,) = [one for one in log.lines if one["event"] == "answered"]
    assert (line["outcome"], line["ms"]) == ("ok", 1000 * HOLDER_S)
    assert line["detail"] == f"answered here, {why}"


def test_a_users_mistake_is_told_beside_the_holder_that_does_not_answer():
    """In the log alone: the Event on the pod must be the same each time."""
    failed = Answer(Verb.FILTER, Outcome.FAILED, b"{}", 1, detail="b is silent")
    told: list[Answer] = []
    body = args(pod(1, affinity="near"), NODES)
    _, log = post(Elsewhere(failed), body, told=told, group_patience_s=60.0)
    (answer,) = told
    assert "affinity" in answer.detail
    assert log.lines[-1]["detail"] == f"{answer.detail}; answered here, b is silent"
