"""Binding: each step to its end, within its deadline, and the engine gets every outcome."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.bind import BindCall, ReadPod, WriteBinding, WriteResult, Written
from extender.engine.events import BindAbandoned, BindingWritten, BindPodRead, BindRequested
from extender.execution import BindDependencies, BindExecutor
from extender.execution.bind import REST_S
from extender.protocol import Answer, Outcome, Verb
from kube.errors import Conflict, KubeError, Malformed, NotFound, Unanswered
from tests.unit.extender.pods import binding as bind_body
from tests.unit.extender.shells import BUSY, DOWN, FORBIDDEN, FakeTime, backoff, pod_object
from topology.annotations import Plan
from topology.model import names

if TYPE_CHECKING:
    from extender.bind import Step
    from extender.engine.events import BindEvent
    from kube.client import Binding
    from kube.objects import PodObject

READ = ReadPod(1, "ns", "p", "u1", "n1")
WRITE = WriteBinding(1, "ns", "p", "u1", "7", "n1", {names.PLAN: "the plan"})
BODY = bind_body("u1", "n1")
OK = Answer(Verb.BIND, Outcome.OK, b"{}", 1)
PLACED = replace(OK, plan=Plan("n1", (), ("GPU-0",), 1, 0.0))
CONFLICT = Conflict(409, "Conflict", "changed")
OUT_OF_TIME = "no time left before the scheduler stops waiting"
TIMEOUT = Unanswered(0, "Timeout", "no answer")


class Gateway:
    """Gives the steps it has, then an answer, and keeps the events it was handed."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.events: list[BindEvent] = []
        self.n_ended = 0

    def handle(self, event: BindEvent) -> Answer | Step:
        self.events.append(event)
        if isinstance(event, BindAbandoned):
            return Answer(Verb.BIND, Outcome.FAILED, b"{}", 1)
        if self.steps:
            return self.steps.pop(0)
        return PLACED if isinstance(event, BindingWritten) else OK


class Api:
    """Answers with what it is given, each in its time."""

    def __init__(self, time: FakeTime, *answers: Any, takes_s: float = 0.0) -> None:
        self.time = time
        self.answers = list(answers)
        self.takes_s = takes_s
        self.requests: list[Any] = []

    async def get_pod(self, namespace: str, name: str, *, timeout_s: float) -> PodObject | None:
        self.requests.append(("get", namespace, name, timeout_s))
        found: PodObject | None = await self._answer(timeout_s)
        return found

    async def bind(self, binding: Binding, *, timeout_s: float) -> None:
        self.requests.append((binding, timeout_s))
        await self._answer(timeout_s)

    async def _answer(self, timeout_s: float) -> Any:
        await self.time.sleep(min(self.takes_s, timeout_s))
        if self.takes_s > timeout_s:
            raise TIMEOUT
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def run(gateway: Gateway, api: Api, *, total_s: float = 4.0) -> Answer:
    """One bind call, at 100 s."""
    executor = BindExecutor(dependencies(gateway, api), total_s=total_s)
    return asyncio.run(executor.bind(BODY))


def dependencies(gateway: Gateway, api: Api) -> BindDependencies:
    """Dependencies with the API's time; nodes whose name begins with "numa" align."""
    return BindDependencies(
        handle=gateway.handle,
        api=api,
        aligns=lambda node: node.startswith("numa"),
        n_ended=lambda _: gateway.n_ended,
        clock=api.time,
        timer=api.time,
        backoff=backoff,
        sleep=api.time.sleep,
    )


def written(gateway: Gateway) -> Written:
    """How the first write ended, as it was reported."""
    event = gateway.events[1]
    assert isinstance(event, BindingWritten)
    return event.written


def test_an_immediate_answer_sends_no_request():
    """A pod that is bound already, or a call that cannot be read."""
    gateway, api = Gateway(), Api(FakeTime())
    assert run(gateway, api) == replace(OK, own_s=0.0)
    assert (gateway.events, api.requests) == ([BindRequested(BindCall.decode(BODY), 100.0)], [])


def test_a_pod_is_read_then_bound():
    """All that a step says is sent, each with the time that is left; a write leaves some of it."""
    time = FakeTime()
    gateway, api = Gateway(READ, WRITE), Api(time, pod_object(), None, takes_s=1.0)
    bound = run(gateway, api)
    assert bound == replace(PLACED, own_s=0.0)
    (_, namespace, name, read_s), (binding, write_s) = api.requests
    assert (namespace, name, read_s) == ("ns", "p", 4.0)
    assert (binding.pod.uid, binding.resource_version, binding.node) == ("u1", "7", "n1")
    assert binding.annotations == {names.PLAN: "the plan"}
    assert write_s == pytest.approx(0.75 * 3.0)
    assert gateway.events[1:] == [
        BindPodRead(READ, pod_object().body, 101.0),
        BindingWritten(WRITE, Written(WriteResult.ACCEPTED), 102.0),
    ]


def test_a_pod_that_is_not_there_is_no_error():
    """The engine knows what it means."""
    gateway = Gateway(READ)
    run(gateway, Api(FakeTime(), None))
    assert gateway.events[1] == BindPodRead(READ, None, 100.0)


@pytest.mark.parametrize(
    ("error", "result"),
    [
        pytest.param(CONFLICT, WriteResult.CONFLICT, id="409 has many reasons"),
        pytest.param(NotFound(404, "NotFound", ""), WriteResult.GONE, id="404"),
        pytest.param(FORBIDDEN, WriteResult.REJECTED, id="403 is certain"),
        pytest.param(KubeError(422, "Invalid", ""), WriteResult.REJECTED, id="422 is certain"),
        pytest.param(KubeError(500, "InternalError", ""), WriteResult.UNKNOWN, id="500 is not"),
        pytest.param(KubeError(503, "Unavailable", ""), WriteResult.UNKNOWN, id="503 is not"),
        pytest.param(TIMEOUT, WriteResult.UNKNOWN, id="a timeout is not"),
        pytest.param(Malformed(0, "Malformed", ""), WriteResult.UNKNOWN, id="nor is garbage"),
    ],
)
def test_the_outcome_of_a_write_reaches_the_engine(error, result):
    """A write that may have come true is never sent again here: the engine looks first."""
    gateway, api = Gateway(WRITE), Api(FakeTime(), error)
    run(gateway, api)
    assert written(gateway) == Written(result, str(error))
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("error", "delay_s"),
    [
        pytest.param(DOWN, 0.05, id="nothing was sent"),
        pytest.param(BUSY, 1.0, id="the server named a delay"),
    ],
)
def test_a_write_that_was_certainly_not_made_is_sent_again(error, delay_s):
    """An API server that restarts is back before the scheduler stops waiting."""
    time = FakeTime()
    gateway, api = Gateway(WRITE), Api(time, error, None)
    run(gateway, api)
    assert written(gateway) == Written(WriteResult.ACCEPTED)
    assert delay_s in time.slept


def test_a_read_is_tried_again_while_there_is_time():
    """Reading changes nothing, so any fault that may pass is worth another try."""
    gateway = Gateway(READ)
    run(gateway, Api(FakeTime(), TIMEOUT, KubeError(500, "InternalError", ""), None))
    (read,) = gateway.events[1:]
    assert read == BindPodRead(READ, None, read.at_s)
    assert read.at_s == pytest.approx(100.15)


@pytest.mark.parametrize(
    "error", [FORBIDDEN, Malformed(0, "Malformed", "no JSON")], ids=["403", "garbage"]
)
def test_a_read_that_would_meet_the_same_again_is_given_up(error):
    """The engine decides what that means for the plan."""
    gateway, api = Gateway(READ), Api(FakeTime(), error)
    assert run(gateway, api).outcome is Outcome.FAILED
    assert gateway.events[1] == BindAbandoned(READ, str(error), 100.0)
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("step", "ended"),
    [
        pytest.param(READ, BindAbandoned(READ, OUT_OF_TIME, 100.0), id="read"),
        pytest.param(
            WRITE,
            BindingWritten(WRITE, Written(WriteResult.UNSENT, OUT_OF_TIME), 100.0),
            id="write: the engine must not take it for one that may succeed",
        ),
    ],
)
def test_without_time_a_step_is_not_begun(step, ended):
    """The scheduler reads no answer after its timeout."""
    gateway, api = Gateway(step), Api(FakeTime())
    run(gateway, api, total_s=0.01)
    assert gateway.events[1] == ended
    assert api.requests == []


def test_a_server_that_stays_down_uses_up_the_time_and_no_more():
    """What is left for the answer is the scheduler's 20 %."""
    time = FakeTime()
    gateway, api = Gateway(WRITE), Api(time, *[DOWN] * 100)
    run(gateway, api)
    assert written(gateway).result is WriteResult.UNSENT
    assert 102.0 < time() <= 104.0


def test_after_a_write_without_an_answer_there_is_time_to_look():
    """The write gets three quarters of the time; the read that settles it gets the rest."""
    time = FakeTime()
    gateway, api = Gateway(WRITE, READ), Api(time, takes_s=3.5)
    run(gateway, api)
    assert written(gateway).result is WriteResult.UNKNOWN
    assert gateway.events[1].at_s == pytest.approx(103.0)
    assert api.requests[1][3] == pytest.approx(1.0)
    assert isinstance(gateway.events[2], BindAbandoned)


def test_a_caller_that_hangs_up_does_not_stop_the_write():
    """The state must learn how it ended."""

    class Slow(Api):
        async def bind(self, binding: Binding, *, timeout_s: float) -> None:
            del binding, timeout_s
            began.set()
            await may_end.wait()

    async def go() -> None:
        executor = BindExecutor(dependencies(gateway, api), total_s=4.0)
        call = asyncio.create_task(executor.bind(BODY))
        await began.wait()
        call.cancel()
        may_end.set()
        await call

    began, may_end = asyncio.Event(), asyncio.Event()
    gateway, api = Gateway(WRITE), Slow(FakeTime())
    asyncio.run(go())
    assert written(gateway) == Written(WriteResult.ACCEPTED)


def test_nothing_more_is_begun_for_a_caller_that_hung_up():
    """Its kube-scheduler may have ended, and another one lead: what was refused stays so."""
    call: Any = None

    class Busy(Api):
        async def bind(self, binding: Binding, *, timeout_s: float) -> None:
            self.requests.append((binding, timeout_s))
            call.cancel()
            await asyncio.sleep(0)
            raise KubeError(429, "TooManyRequests", "later")

    async def go() -> None:
        nonlocal call
        executor = BindExecutor(dependencies(gateway, api), total_s=24.0)
        call = asyncio.create_task(executor.bind(BODY))
        await call

    gateway, api = Gateway(WRITE), Busy(FakeTime())
    asyncio.run(go())
    assert len(api.requests) == 1
    assert written(gateway).result is WriteResult.REJECTED


@pytest.mark.parametrize(
    ("bodies", "n_at_once"),
    [
        pytest.param([BODY] * 3, 3, id="no Topology Manager"),
        pytest.param([bind_body("u1", "numa-1")] * 3, 1, id="one node that aligns"),
        pytest.param(
            [bind_body("u1", "numa-1"), bind_body("u1", "numa-2"), bind_body("u1", "numa-1")],
            2,
            id="two such nodes",
        ),
    ],
)
def test_binds_to_a_node_that_aligns_take_turns(bodies, n_at_once):
    """Its kubelet confines by order of arrival, so plans are written in the order they are made."""

    class Counting(Api):
        async def bind(self, binding: Binding, *, timeout_s: float) -> None:
            del binding, timeout_s
            running.append(len(running))
            most.append(len(running))
            for _ in range(5):
                await asyncio.sleep(0)
            running.pop()

    async def go() -> None:
        executor = BindExecutor(dependencies(gateway, api), total_s=4.0)
        await asyncio.gather(*map(executor.bind, bodies))

    running: list[int] = []
    most: list[int] = []
    time = FakeTime()
    gateway, api = Gateway(WRITE, WRITE, WRITE), Counting(time)
    asyncio.run(go())
    assert (len(most), max(most)) == (3, n_at_once)


def test_no_bind_overtakes_one_that_waits_its_turn():
    """Between a bind that wrote nothing and the one that waits, the node's lock is free."""

    class Writing(Gateway):
        def handle(self, event: BindEvent) -> Answer | Step:
            return WRITE if isinstance(event, BindRequested) else OK

    class Failing(Api):
        async def bind(self, binding: Binding, *, timeout_s: float) -> None:
            del binding, timeout_s
            running.append(len(running))
            most.append(len(running))
            if len(most) == 1:
                calls.append(asyncio.create_task(executor.bind(body)))
                await asyncio.sleep(0)  # the third call begins as this one ends
                running.pop()
                raise NotFound(404, "NotFound", "gone")
            await asyncio.sleep(0)
            running.pop()

    async def go() -> None:
        await asyncio.gather(executor.bind(body), executor.bind(body))
        await asyncio.gather(*calls)

    running: list[int] = []
    most: list[int] = []
    calls: list[asyncio.Task[Answer]] = []
    body = bind_body("u1", "numa-1")
    executor = BindExecutor(dependencies(Writing(), Failing(FakeTime())), total_s=4.0)
    asyncio.run(go())
    assert most == [1, 1, 1]


@pytest.mark.parametrize(
    ("body", "gap_s", "n_ended", "total_s", "begins_s"),
    [
        pytest.param(bind_body("u1", "numa-1"), 0.5, 1, 10.0, 100 + REST_S, id="a pod ended"),
        pytest.param(bind_body("u1", "numa-1"), 0.5, 0, 10.0, 100.5, id="none did"),
        pytest.param(bind_body("u1", "numa-1"), 3.0, 1, 10.0, 103.0, id="all is reported by now"),
        pytest.param(bind_body("u1", "numa-1"), 0.5, 1, 1.0, 101.0, id="half of the time there is"),
        pytest.param(BODY, 0.5, 1, 10.0, 100.5, id="no Topology Manager"),
    ],
)
def test_a_bind_rests_where_the_one_before_may_have_gone_astray(
    body, gap_s, n_ended, total_s, begins_s
):
    """What ended after a plan was made may have turned the planned pod to other GPUs."""

    async def go() -> None:
        executor = BindExecutor(dependencies(gateway, Api(time, None, None)), total_s=total_s)
        await executor.bind(body)
        gateway.n_ended = n_ended
        await time.sleep(gap_s)
        await executor.bind(body)

    time, gateway = FakeTime(), Gateway(WRITE, WRITE)
    asyncio.run(go())
    begun = [one.at_s for one in gateway.events if isinstance(one, BindRequested)]
    assert begun == [100.0, pytest.approx(begins_s)]


def test_no_bind_rests_for_one_that_wrote_nothing():
    """It was bound already, or could not be: there is no plan that went astray."""

    async def go() -> None:
        executor = BindExecutor(dependencies(gateway, Api(time)), total_s=4.0)
        await executor.bind(bind_body("u1", "numa-1"))
        gateway.n_ended = 1
        await executor.bind(bind_body("u1", "numa-1"))

    time, gateway = FakeTime(), Gateway()
    asyncio.run(go())
    assert time() == 100.0


def test_an_internal_fault_also_reaches_the_engine():
    """Else the pod could not be bound again before its assumption ends."""
    gateway, api = Gateway(WRITE), Api(FakeTime(), RuntimeError("bug"))
    with pytest.raises(RuntimeError, match="bug"):
        run(gateway, api)
    assert gateway.events[1] == BindAbandoned(WRITE, "interrupted", 100.0)
