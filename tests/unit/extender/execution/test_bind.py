"""Binding: each step to its end, within the time there is, and the engine hears of every end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from extender.bind import ReadPod, WriteBinding, WriteResult, Written
from extender.execution import Binder, BindTools, Bound
from extender.execution.bind import REST_S
from extender.protocol import Answer, Outcome, Verb
from kube.errors import Conflict, KubeError, Malformed, NotFound, Unanswered
from tests.unit.extender.shells import BUSY, DOWN, FORBIDDEN, FakeTime, backoff, pod_object
from topology.model import names

if TYPE_CHECKING:
    from extender.bind import Step
    from kube.client import Binding
    from kube.objects import PodObject

READ = ReadPod(1, "ns", "p", "u1", "n1")
WRITE = WriteBinding(1, "ns", "p", "u1", "7", "n1", {names.PLAN: "the plan"})
OK = Answer(Verb.BIND, Outcome.OK, b"{}", 1)
CONFLICT = Conflict(409, "Conflict", "changed")
TIMEOUT = Unanswered(0, "Timeout", "no answer")


class Desk:
    """Asks for the steps it is given, then answers, and notes what it hears."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.heard: list[Any] = []
        self.ended = 0

    def turn_of(self, body: bytes) -> str | None:
        return body.decode() if body.startswith(b"turn") else None

    def n_ended(self, node: str) -> int:
        return self.ended if node else 0

    def begin_bind(self, body: bytes, now_s: float) -> Answer | Step:
        self.heard.append((body, now_s))
        return self._next()

    def pod_read(self, step: ReadPod, pod: bytes | None, now_s: float) -> Answer | Step:
        self.heard.append(("read", step, pod, now_s))
        return self._next()

    def binding_written(self, step: WriteBinding, written: Written, now_s: float) -> Answer | Step:
        self.heard.append(("written", step, written, now_s))
        return self._next()

    def abandon(self, step: Step, detail: str, now_s: float) -> Answer:
        self.heard.append(("abandon", step, detail, now_s))
        return Answer(Verb.BIND, Outcome.FAILED, b"{}", 1)

    def _next(self) -> Answer | Step:
        return self.steps.pop(0) if self.steps else OK


class Api:
    """Answers with what it is given, each in its time."""

    def __init__(self, time: FakeTime, *answers: Any, takes_s: float = 0.0) -> None:
        self.time = time
        self.answers = list(answers)
        self.takes_s = takes_s
        self.asked: list[Any] = []

    async def get_pod(self, namespace: str, name: str, *, timeout_s: float) -> PodObject | None:
        self.asked.append(("get", namespace, name, timeout_s))
        found: PodObject | None = await self._answer(timeout_s)
        return found

    async def bind(self, binding: Binding, *, timeout_s: float) -> None:
        self.asked.append((binding, timeout_s))
        await self._answer(timeout_s)

    async def _answer(self, timeout_s: float) -> Any:
        await self.time.sleep(min(self.takes_s, timeout_s))
        if self.takes_s > timeout_s:
            raise TIMEOUT
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def run(desk: Desk, api: Api, *, total_s: float = 4.0, at_most_s: float = 60.0) -> Bound:
    """One bind call, at 100 s."""
    binder = Binder(tools(desk, api), total_s=total_s)
    return asyncio.run(binder.bind(b"body", at_most_s=at_most_s))


def tools(desk: Desk, api: Api) -> BindTools:
    """Tools that stand on the API's time."""
    return BindTools(desk, api, api.time, api.time, backoff, api.time.sleep)


def test_an_answer_at_once_asks_nobody():
    """A pod that is bound already, or a call that cannot be read."""
    desk, api = Desk(), Api(FakeTime())
    assert run(desk, api) == Bound(OK, 0.0)
    assert (desk.heard, api.asked) == ([(b"body", 100.0)], [])


def test_a_pod_is_read_then_bound():
    """All that a step says is sent, each with the time that is left; a write leaves some of it."""
    time = FakeTime()
    desk, api = Desk(READ, WRITE), Api(time, pod_object(), None, takes_s=1.0)
    bound = run(desk, api)
    assert bound == Bound(OK, 0.0, "the plan")
    (_, namespace, name, read_s), (binding, write_s) = api.asked
    assert (namespace, name, read_s) == ("ns", "p", 4.0)
    assert (binding.pod.uid, binding.resource_version, binding.node) == ("u1", "7", "n1")
    assert binding.annotations == {names.PLAN: "the plan"}
    assert write_s == pytest.approx(0.75 * 3.0)
    assert desk.heard[1:] == [
        ("read", READ, pod_object().body, 101.0),
        ("written", WRITE, Written(WriteResult.ACCEPTED), 102.0),
    ]


def test_a_pod_that_is_not_there_is_no_error():
    """The engine knows what it means."""
    desk = Desk(READ)
    run(desk, Api(FakeTime(), None))
    assert desk.heard[1] == ("read", READ, None, 100.0)


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
def test_the_end_of_a_write_is_told_as_it_is(error, result):
    """A write that may have come true is never sent again here: the engine looks first."""
    desk, api = Desk(WRITE), Api(FakeTime(), error)
    bound = run(desk, api)
    assert desk.heard[1][2] == Written(result, str(error))
    assert len(api.asked) == 1
    assert bound.plan_text is None


@pytest.mark.parametrize(
    ("error", "delay_s"),
    [
        pytest.param(DOWN, 0.05, id="nothing was sent"),
        pytest.param(BUSY, 1.0, id="the server asked to come back"),
    ],
)
def test_a_write_that_was_certainly_not_made_is_sent_again(error, delay_s):
    """An API server that restarts is back before the scheduler stops waiting."""
    time = FakeTime()
    desk, api = Desk(WRITE), Api(time, error, None)
    run(desk, api)
    assert desk.heard[1][2] == Written(WriteResult.ACCEPTED)
    assert delay_s in time.slept


def test_a_read_is_tried_again_while_there_is_time():
    """Reading changes nothing, so any fault that may pass is worth another try."""
    desk = Desk(READ)
    run(desk, Api(FakeTime(), TIMEOUT, KubeError(500, "InternalError", ""), None))
    assert desk.heard[1] == ("read", READ, None, pytest.approx(100.15))


@pytest.mark.parametrize(
    "error", [FORBIDDEN, Malformed(0, "Malformed", "no JSON")], ids=["403", "garbage"]
)
def test_a_read_that_would_meet_the_same_again_is_given_up(error):
    """The engine decides what that means for the plan."""
    desk, api = Desk(READ), Api(FakeTime(), error)
    assert run(desk, api).answer.outcome is Outcome.FAILED
    assert desk.heard[1][:3] == ("abandon", READ, str(error))
    assert len(api.asked) == 1


@pytest.mark.parametrize("step", [READ, WRITE], ids=["read", "write"])
def test_without_time_a_step_is_not_begun(step):
    """The scheduler reads no answer after its timeout."""
    desk, api = Desk(step), Api(FakeTime())
    run(desk, api, total_s=0.01)
    assert desk.heard[1][0] == "abandon"
    assert api.asked == []


def test_a_server_that_stays_down_uses_up_the_time_and_no_more():
    """What is left for the answer is the scheduler's 20 %."""
    time = FakeTime()
    desk, api = Desk(WRITE), Api(time, *[DOWN] * 100)
    run(desk, api)
    assert desk.heard[1][2].result is WriteResult.REJECTED
    assert 102.0 < time() <= 104.0


def test_after_a_write_without_an_answer_there_is_time_to_look():
    """The write gets three quarters of the time; the read that settles it gets the rest."""
    time = FakeTime()
    desk, api = Desk(WRITE, READ), Api(time, takes_s=3.5)
    run(desk, api)
    assert desk.heard[1][2].result is WriteResult.UNKNOWN
    assert desk.heard[1][3] == pytest.approx(103.0)
    assert api.asked[1][3] == pytest.approx(1.0)
    assert desk.heard[2][0] == "abandon"


def test_another_bound_on_the_time_counts_too():
    """The holder of a Lease stops with it, and a forwarded call has less left."""
    api = Api(FakeTime(), None)
    run(Desk(READ), api, at_most_s=1.5)
    assert api.asked[0][3] == 1.5


def test_a_caller_that_hangs_up_does_not_stop_the_write():
    """The ledger must learn how it ended."""

    class Slow(Api):
        async def bind(self, binding: Binding, *, timeout_s: float) -> None:
            del binding, timeout_s
            began.set()
            await may_end.wait()

    async def go() -> None:
        binder = Binder(tools(desk, api), total_s=4.0)
        call = asyncio.create_task(binder.bind(b"body"))
        await began.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        may_end.set()
        await binder.drain()

    began, may_end = asyncio.Event(), asyncio.Event()
    desk, api = Desk(WRITE), Slow(FakeTime())
    asyncio.run(go())
    assert desk.heard[1][2] == Written(WriteResult.ACCEPTED)


@pytest.mark.parametrize(
    ("bodies", "n_at_once"),
    [
        pytest.param([b"body"] * 3, 3, id="no Topology Manager"),
        pytest.param([b"turn-1"] * 3, 1, id="one node that aligns"),
        pytest.param([b"turn-1", b"turn-2", b"turn-1"], 2, id="two such nodes"),
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
        binder = Binder(tools(desk, api), total_s=4.0)
        await asyncio.gather(*map(binder.bind, bodies))
        await time.sleep(REST_S)
        await binder.bind(b"turn-3")
        assert set(binder._lanes) == {"turn-3"}, "who waits for nobody is forgotten"

    running: list[int] = []
    most: list[int] = []
    time = FakeTime()
    desk, api = Desk(WRITE, WRITE, WRITE), Counting(time)
    asyncio.run(go())
    assert (len(most), max(most)) == (3, n_at_once)


@pytest.mark.parametrize(
    ("body", "gap_s", "n_ended", "at_most_s", "begins_s"),
    [
        pytest.param(b"turn-1", 0.5, 1, 60.0, 100 + REST_S, id="a pod ended"),
        pytest.param(b"turn-1", 0.5, 0, 60.0, 100.5, id="none did"),
        pytest.param(b"turn-1", 3.0, 1, 60.0, 103.0, id="all is told by now"),
        pytest.param(b"turn-1", 0.5, 1, 1.0, 101.0, id="half of the time there is"),
        pytest.param(b"body", 0.5, 1, 60.0, 100.5, id="no Topology Manager"),
    ],
)
def test_a_bind_rests_where_the_one_before_may_have_gone_astray(
    body, gap_s, n_ended, at_most_s, begins_s
):
    """What ended after a plan was made may have turned the planned pod to other GPUs."""

    async def go() -> None:
        binder = Binder(tools(desk, Api(time, None, None)), total_s=10.0)
        await binder.bind(body)
        desk.ended = n_ended
        await time.sleep(gap_s)
        await binder.bind(body, at_most_s=at_most_s)

    time, desk = FakeTime(), Desk(WRITE, WRITE)
    asyncio.run(go())
    assert [one[1] for one in desk.heard if one[0] == body] == [100.0, pytest.approx(begins_s)]


def test_no_bind_rests_for_one_that_wrote_nothing():
    """It was bound already, or could not be: there is no plan that went astray."""

    async def go() -> None:
        binder = Binder(tools(desk, Api(time)), total_s=4.0)
        await binder.bind(b"turn-1")
        desk.ended = 1
        await binder.bind(b"turn-1")

    time, desk = FakeTime(), Desk()
    asyncio.run(go())
    assert time() == 100.0


def test_a_fault_of_our_own_is_told_to_the_engine_too():
    """Else the pod could not be bound again before its assumption ends."""
    desk, api = Desk(WRITE), Api(FakeTime(), RuntimeError("bug"))
    with pytest.raises(RuntimeError, match="bug"):
        run(desk, api)
    assert desk.heard[1][:3] == ("abandon", WRITE, "interrupted")
