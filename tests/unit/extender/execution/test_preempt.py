"""Reading for a preemption: side by side, in time, and what is missing is left out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from extender.engine.events import PreemptAbandoned, PreemptNodesRead, PreemptRequested
from extender.execution import PreemptDependencies, PreemptExecutor
from extender.preemption import ReadNodes
from extender.protocol import Answer, Outcome, Verb
from kube.errors import KubeError, Malformed
from kube.objects import DisruptionBudget, PodObject, read_pod
from kube.watch import Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.engine.events import PreemptEvent

BUDGET = DisruptionBudget("ns", "b", (), 1, frozenset())
DOWN = KubeError(503, "Unavailable", "down", retry_after_s=0.25)
FORBIDDEN = KubeError(403, "Forbidden", "no")
ODD = Malformed(0, "Unreadable", "odd")


class Gateway:
    """Gives the steps it has, then an answer, and keeps the events it was handed."""

    def __init__(self, *steps: ReadNodes) -> None:
        self.steps = list(steps)
        self.events: list[Any] = []

    def handle(self, event: PreemptEvent) -> Answer | ReadNodes:
        match event:
            case PreemptRequested(body, at_s):
                self.events.append((body, at_s))
            case PreemptNodesRead(step, read, at_s):
                self.events.append((step.preempt_id, read, at_s))
            case PreemptAbandoned(step, detail, at_s):
                self.events.append((step.preempt_id, detail, at_s))
                return Answer(Verb.PREEMPT, Outcome.FAILED, b"{}", 1)
        return self.steps.pop(0) if self.steps else Answer(Verb.PREEMPT, Outcome.OK, b"{}", 1)


class Api:
    """Nodes with one pod each. A node is broken by an error, or by some one by one; or hangs."""

    def __init__(self, **faults: Any) -> None:
        self.faults = faults
        self.began: list[str] = []
        self.n_begun = asyncio.Semaphore(0)

    async def get_allocatable(self, name: str) -> Mapping[str, Fraction] | None:
        await self._meet(name)
        return None if self.faults.get(name) == "gone" else {"cpu": Fraction(1)}

    async def list_pods_on(self, node: str) -> tuple[PodObject, ...]:
        meta = {"uid": f"{node}-u", "namespace": "ns", "name": "p", "resourceVersion": "1"}
        status = {"startTime": "noon"} if self.faults.get(node) == "odd" else {}
        return (read_pod({"metadata": meta, "spec": {"priority": 3}, "status": status}),)

    async def list_pdbs(self) -> tuple[DisruptionBudget, ...]:
        await self._meet("budgets")
        return (BUDGET,)

    async def _meet(self, name: str) -> None:
        self.began.append(name)
        self.n_begun.release()
        fault = self.faults.get(name)
        if isinstance(fault, list):
            fault = fault.pop(0) if fault else None
        if isinstance(fault, Exception):
            raise fault
        if isinstance(fault, asyncio.Event):
            await fault.wait()


def dependencies(gateway: Gateway, api: Api, **more: Any) -> PreemptDependencies:
    """At 5 s, ready; no task sleeps for long."""
    fields: dict[str, Any] = {
        "is_ready": lambda: True,
        "clock": lambda: 5.0,
        "timer": asyncio.get_running_loop().time,
        "backoff": lambda: Backoff(first_s=0.1, cap_s=1.0, jitter=lambda: 0.0),
        "sleep": lambda _: asyncio.sleep(0),
    }
    return PreemptDependencies(gateway.handle, api, **fields | more)


def run(gateway: Gateway, api: Api, *, total_s: float = 10.0) -> Answer:
    """Answer one call."""

    async def call() -> Answer:
        executor = PreemptExecutor(dependencies(gateway, api), total_s=total_s)
        bound = await executor.preempt(b"body")
        assert bound.own_s is not None
        assert 0 <= bound.own_s < 10
        return replace(bound, own_s=None)

    return asyncio.run(call())


def read_names(events: Any) -> list[str]:
    """The nodes that the gateway got."""
    return [node.name for node in events[1].nodes]


def test_an_answer_without_reads_is_given_at_once():
    """Nothing is read."""
    gateway, api = Gateway(), Api()
    assert run(gateway, api).outcome is Outcome.OK
    assert gateway.events == [(b"body", 5.0)]
    assert api.began == []


def test_each_step_reads_what_it_names():
    """Room in millicores, pods as they are weighed, budgets as they are."""
    gateway, api = Gateway(ReadNodes(1, ("n1", "n2")), ReadNodes(1, ("n3",))), Api()
    assert run(gateway, api).outcome is Outcome.OK
    (_, first, at_s), second = gateway.events[1:]
    assert [(one.name, one.room, one.pods[0].uid) for one in first.nodes] == [
        ("n1", {"cpu": 1000}, "n1-u"),
        ("n2", {"cpu": 1000}, "n2-u"),
    ]
    assert first.nodes[0].pods[0].priority == 3
    assert (first.budgets, at_s) == ((BUDGET,), 5.0)
    assert read_names(second) == ["n3"]


def test_nodes_are_read_side_by_side():
    """One that is slow does not delay the others."""

    async def call() -> None:
        slow = asyncio.Event()
        gateway, api = Gateway(ReadNodes(1, ("n1", "n2", "n3"))), Api(n1=slow, budgets=slow)
        task = asyncio.create_task(
            PreemptExecutor(dependencies(gateway, api), total_s=60.0).preempt(b"")
        )
        for _ in range(4):
            await api.n_begun.acquire()
        slow.set()
        await task
        assert read_names(gateway.events[1]) == ["n1", "n2", "n3"]

    asyncio.run(call())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param(FORBIDDEN, "node n1: 403 Forbidden: no", id="forbidden"),
        pytest.param(ODD, "node n1: Unreadable: odd", id="no such answer"),
        pytest.param("gone", "node n1: it is gone", id="gone"),
        pytest.param("odd", "node n1: startTime is 'noon', expected a time", id="an odd pod"),
    ],
)
def test_a_node_that_cannot_be_read_is_left_out(fault, says):
    """The others may be enough; a retry would not help."""
    gateway, api = Gateway(ReadNodes(1, ("n1", "n2"))), Api(n1=fault)
    assert run(gateway, api).outcome is Outcome.OK
    assert read_names(gateway.events[1]) == ["n2"]
    assert gateway.events[1][1].fault.startswith(says)
    assert api.began.count("n1") == 1


def test_what_may_work_a_little_later_is_tried_again():
    """After the delay that the server names, else after longer and longer."""

    async def call() -> None:
        slept: list[float] = []

        async def sleep(delay_s: float) -> None:
            slept.append(delay_s)

        lost = KubeError(0, "Unanswered", "reset")
        gateway, api = Gateway(ReadNodes(1, ("n1",))), Api(n1=[DOWN, lost, lost])
        await PreemptExecutor(dependencies(gateway, api, sleep=sleep), total_s=60.0).preempt(b"")
        assert read_names(gateway.events[1]) == ["n1"]
        assert slept == [0.25, 0.1, 0.2]

    asyncio.run(call())


def test_a_state_that_is_not_fresh_is_waited_for():
    """After a restart of ours the scheduler would park the pod for an error; but not for ever."""

    async def call() -> None:
        looks = [False, False, True]
        gateway = Gateway()
        await PreemptExecutor(
            dependencies(gateway, Api(), is_ready=lambda: looks.pop(0)), total_s=60.0
        ).preempt(b"")
        assert looks == []
        times = iter([0.0, 0.0, 0.7, 0.86, 0.87, 0.88, 0.89])
        stale = dependencies(gateway, Api(), is_ready=lambda: False, timer=lambda: next(times))
        await PreemptExecutor(stale, total_s=1.0).preempt(b"late")
        assert [body for body, _ in gateway.events] == [b"", b"late"]

    asyncio.run(call())


def test_without_budgets_no_victim_is_chosen():
    """Who may go is not known."""
    gateway = Gateway(ReadNodes(1, ("n1",)))
    assert run(gateway, Api(budgets=FORBIDDEN)).outcome is Outcome.FAILED
    detail = "disruption budgets: 403 Forbidden: no"
    assert gateway.events[1] == (1, detail, 5.0)


def test_what_was_read_in_time_counts():
    """A node that hangs costs itself, not the pod."""
    gateway = Gateway(ReadNodes(1, ("n1", "n2")))
    assert run(gateway, Api(n1=asyncio.Event()), total_s=0.05).outcome is Outcome.OK
    assert read_names(gateway.events[1]) == ["n2"]


def test_out_of_time_before_the_budgets_is_the_end():
    """The scheduler has stopped waiting."""
    gateway = Gateway(ReadNodes(1, ("n1",)))
    assert run(gateway, Api(budgets=asyncio.Event()), total_s=0.0).outcome is Outcome.FAILED
    assert gateway.events[1] == (1, "no time left before the scheduler stops waiting", 5.0)


def test_a_caller_that_hangs_up_ends_the_step():
    """The engine forgets the preemption."""

    async def call() -> None:
        gateway, api = Gateway(ReadNodes(7, ("n1",))), Api(n1=asyncio.Event())
        task = asyncio.create_task(
            PreemptExecutor(dependencies(gateway, api), total_s=60.0).preempt(b"")
        )
        await api.n_begun.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gateway.events[1:] == [(7, "interrupted", 5.0)]

    asyncio.run(call())
