"""Where bind, preempt and members' filter are answered: here, at the Lease's holder, or nowhere."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from extender.errors import PeerError
from extender.ha import ForwardedCall, LeaderRouter, Peers
from extender.protocol import Answer, Outcome, Reason, TimedAnswer, Verb
from tests.unit.extender.engines import engine
from tests.unit.extender.shells import FakeTime, pod_object

if TYPE_CHECKING:
    from kube.objects import PodObject

HERE = Answer(Verb.BIND, Outcome.OK, b'{"Error":""}', 1, node="n1")
TOTAL_S = 4.0


class Local:
    """Answers here, and notes the time it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, float]] = []

    async def bind(self, body: bytes, *, at_most_s: float = 60.0) -> TimedAnswer:
        self.calls.append((body, at_most_s))
        return TimedAnswer(HERE, 0.001, "plan")

    preempt = bind


class Others:
    """The replicas, and what they answer."""

    identity = "http://me"
    left_s = 7.0

    def __init__(
        self,
        time: FakeTime,
        *,
        may_bind: bool = False,
        holder: str | None = None,
        answer: Any = b"",
        settles_s: float = 0.0,
    ) -> None:
        self.time = time
        self.may_bind = may_bind
        self.other_holder = holder
        self.answer = answer
        self.settles_s = settles_s
        self.forwarded: list[Any] = []

    async def settled(self, *, within_s: float) -> bool:
        await self.time.sleep(min(within_s, self.settles_s))
        return True

    async def forward(self, url: str, verb: str, body: bytes, *, timeout_s: float) -> bytes:
        self.forwarded.append((url, verb, body, timeout_s))
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: bytes = self.answer
        return answer


def verbs(local: Any, others: Any = None, time: FakeTime | None = None) -> LeaderRouter:
    """Verbs among these."""
    return LeaderRouter(
        engine(),
        Pods(),
        bind=local,
        preempt=local,
        total_s=TOTAL_S,
        timer=time or FakeTime(),
        peers=None if others is None else Peers(others, others),
    )


class Pods:
    """One pod."""

    async def get_pod(self, namespace: str, name: str) -> PodObject | None:
        return pod_object() if (namespace, name) == ("ns", "p") else None


@pytest.mark.parametrize("verb", ["bind", "preempt"])
def test_the_only_replica_answers(verb):
    """With all the time there is."""
    local = Local()
    bound = asyncio.run(getattr(verbs(local), verb)(b"body"))
    assert bound == TimedAnswer(HERE, 0.001, "plan")
    assert local.calls == [(b"body", 60.0)]


@pytest.mark.parametrize(
    ("verb", "forwarded", "term_s", "at_most_s"),
    [
        pytest.param("preempt", None, 7.0, TOTAL_S, id="called by the scheduler"),
        pytest.param("preempt", None, 1.0, 1.0, id="near the end of the term"),
        pytest.param(
            "preempt", ForwardedCall("http://b", 2.5), 7.0, 2.5, id="called by another replica"
        ),
        pytest.param("bind", None, 7.0, TOTAL_S, id="bind: called by the scheduler"),
        pytest.param("bind", None, 1.0, TOTAL_S, id="bind: it keeps to the term by itself"),
        pytest.param(
            "bind", ForwardedCall("http://b", 2.5), 7.0, 2.5, id="bind: called by another replica"
        ),
    ],
)
def test_the_holder_answers_within_its_term(verb, forwarded, term_s, at_most_s):
    """And within what the scheduler still waits."""
    time = FakeTime()
    local, others = Local(), Others(time, may_bind=True)
    others.left_s = term_s
    bound = asyncio.run(getattr(verbs(local, others, time), verb)(b"body", forwarded))
    assert bound.answer is HERE
    assert local.calls == [(b"body", at_most_s)]


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("bind", b'{"Error": ""}'),
        ("bind", b'{"Error":"taken"}'),
        ("bind", b"<html>"),
        ("preempt", b'{"NodeNameToMetaVictims":{}}'),
    ],
)
def test_a_follower_forwards_to_the_holder(verb, answer):
    """The answer goes back as it came, and the holder learns how long the scheduler waits.

    What became of the call, and its time, is the holder's to count.
    """
    time = FakeTime()
    local, others = Local(), Others(time, holder="http://b", answer=answer, settles_s=1.0)
    bound = asyncio.run(getattr(verbs(local, others, time), verb)(b"body"))
    assert (bound.answer.body, bound.answer.outcome) == (answer, Outcome.FORWARDED)
    assert bound.own_s is None
    assert bound.answer.detail == "forwarded to http://b"
    assert others.forwarded == [("http://b", verb, b"body", TOTAL_S - 1.0)]
    assert local.calls == []


@pytest.mark.parametrize(
    ("holder", "forwarded", "detail"),
    [
        pytest.param(None, None, "request received by http://me", id="no replica holds it"),
        pytest.param(
            "http://b",
            ForwardedCall("http://c", 3.0),
            "request received by http://me",
            id="forwarded to us",
        ),
        pytest.param("http://b", None, "no route", id="the holder is gone"),
    ],
)
def test_without_a_holder_the_scheduler_gets_an_error_to_retry(holder, forwarded, detail):
    """A call is forwarded once: two followers must not forward it to each other."""
    time = FakeTime()
    others = Others(time, holder=holder, answer=PeerError("no route"))
    bound = asyncio.run(verbs(Local(), others, time).bind(b"body", forwarded))
    assert (bound.answer.outcome, bound.answer.reason) == (Outcome.FAILED, Reason.NO_HOLDER)
    assert json.loads(bound.answer.body)["Error"].endswith(detail)
    assert len(others.forwarded) == (forwarded is None and holder is not None)


def test_half_of_the_time_is_waited_for_a_holder():
    """A fail-over that ends in this time costs the pod nothing."""
    time = FakeTime()
    others = Others(time, settles_s=60.0)
    asyncio.run(verbs(Local(), others, time).bind(b"body"))
    assert time.slept == [TOTAL_S / 2]


@pytest.mark.parametrize("others", [None, {"may_bind": True}], ids=["alone", "holder"])
def test_filter_for_a_member_is_answered_here_where_claims_are(others):
    """By the only replica, and by the holder."""
    time = FakeTime()
    peers = None if others is None else Others(time, **others)
    assert asyncio.run(verbs(Local(), peers, time).filter_member(b"body")) is None


def test_a_follower_forwards_filter_for_a_member():
    """Within the time that a scheduling cycle may take, or less."""
    time = FakeTime()
    others = Others(time, holder="http://b", answer=b'{"NodeNames":["n1"]}', settles_s=60.0)
    answer = asyncio.run(verbs(Local(), others, time).filter_member(b"body"))
    assert answer is not None
    assert (answer.verb, answer.outcome) == (Verb.FILTER, Outcome.FORWARDED)
    assert answer.body == b'{"NodeNames":["n1"]}'
    assert others.forwarded == [("http://b", "filter", b"body", 2.0)]
    assert time.slept == []


@pytest.mark.parametrize(
    ("holder", "forwarded"),
    [
        pytest.param(None, None, id="no replica holds it"),
        pytest.param("http://b", ForwardedCall("http://c", 3.0), id="forwarded to us"),
    ],
)
def test_without_a_holder_a_member_gets_an_error_at_once(holder, forwarded):
    """The scheduler places no other pod meanwhile; after an error it retries in seconds."""
    time = FakeTime()
    others = Others(time, holder=holder, settles_s=60.0)
    answer = asyncio.run(verbs(Local(), others, time).filter_member(b"body", forwarded))
    assert answer is not None
    assert (answer.outcome, answer.reason) == (Outcome.FAILED, Reason.NO_HOLDER)
    assert json.loads(answer.body)["Error"].endswith("request received by http://me")
    assert (others.forwarded, time.slept) == ([], [])


def test_a_holder_that_did_not_answer_is_not_called_for_every_member():
    """64 members would stop the scheduler for two seconds each; another holder is called."""

    async def go() -> list[str]:
        said = []
        for step in ("lost", "at once", "another", "again", "later"):
            others.answer = PeerError("no route") if step in ("lost", "again") else b"{}"
            others.other_holder = "http://c" if step == "another" else "http://b"
            time.now_s += 5.0 if step == "later" else 0.0
            answer = await router.filter_member(b"body")
            assert answer is not None
            said.append(answer.detail)
        return said

    time = FakeTime()
    others = Others(time)
    router = verbs(Local(), others, time)
    lost, at_once, *rest = asyncio.run(go())
    assert lost.endswith("no route")
    assert at_once.endswith("replica http://b did not answer just now")
    assert [one.rpartition(" ")[2] for one in rest] == ["http://c", "route", "http://b"]
    assert len(others.forwarded) == 4


def test_a_holder_that_stays_silent_is_called_less_and_less():
    """Each call in vain stops the scheduler for two seconds; at the end one in half a minute."""

    async def go() -> list[float]:
        called_s: list[float] = []
        while time.now_s < 150.0:
            n_before = len(others.forwarded)
            await router.filter_member(b"body")
            if len(others.forwarded) > n_before:
                called_s.append(time.now_s)
            time.now_s += 1.0
        return called_s

    time = FakeTime()
    others = Others(time, holder="http://b", answer=PeerError("no route"))
    router = verbs(Local(), others, time)
    time.now_s = 0.0
    assert asyncio.run(go()) == [0.0, 5.0, 15.0, 35.0, 65.0, 95.0, 125.0]


def test_calls_side_by_side_that_end_in_vain_count_once():
    """Two schedulers call at the same time, and both wait."""

    async def go() -> None:
        others.answer = PeerError("no route")
        await asyncio.gather(router.filter_member(b"a"), router.filter_member(b"b"))
        time.now_s += 5.0
        others.answer = b"{}"
        answer = await router.filter_member(b"c")
        assert answer is not None
        assert answer.outcome is Outcome.FORWARDED

    class Slow(Others):
        async def forward(self, url: str, verb: str, body: bytes, *, timeout_s: float) -> bytes:
            await asyncio.sleep(0)
            return await super().forward(url, verb, body, timeout_s=timeout_s)

    time = FakeTime()
    others = Slow(time, holder="http://b")
    router = verbs(Local(), others, time)
    asyncio.run(go())
    assert len(others.forwarded) == 3


def test_a_pod_is_read_for_its_explanation():
    """As the API server has it."""
    reads = verbs(Local())
    assert asyncio.run(reads.read_pod("ns", "p")) == pod_object().body
    assert asyncio.run(reads.read_pod("ns", "q")) is None
