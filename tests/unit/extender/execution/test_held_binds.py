"""Binds of a group's members: held until the others are there, for a bounded time, in order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.bind import HoldBind, WriteBinding
from extender.engine.events import BindAbandoned, BindHeld, BindingWritten, BindRequested
from extender.execution import BindDependencies, BindExecutor
from extender.protocol import Answer, Outcome, Verb
from tests.unit.extender.pods import binding as bind_body
from tests.unit.extender.shells import FakeTime, backoff

if TYPE_CHECKING:
    from extender.bind import AnyStep
    from extender.engine.events import BindEvent
    from kube.client import Binding

TOTAL_S = 16.0


class World:
    """Members "m0", "m1", ... of one group, released once `size` of them have a bind call here.

    A node whose name begins with "numa" aligns; there a member waits for those with lower numbers.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.time = FakeTime()
        self.here: set[str] = set()
        self.is_released = False
        self.done: set[str] = set()
        self.nodes: dict[str, str] = {}
        self.written: list[str] = []
        self.events: list[BindEvent] = []
        self.n_writing = 0
        self.most_writing = 0
        self.timeouts_s: list[float] = []
        self.dependencies = BindDependencies(
            handle=self.handle,
            api=self,
            aligns=lambda node: node.startswith("numa"),
            n_ended=lambda _: 0,
            is_member=lambda uid: uid.startswith("m"),
            is_held=self.is_held,
            clock=self.time,
            timer=self.time,
            backoff=backoff,
            sleep=self.time.sleep,
            wait=self.wait,
        )
        self.executor = BindExecutor(self.dependencies, total_s=TOTAL_S)

    async def wait(self, event: asyncio.Event, at_most_s: float) -> None:
        """Time passes only where the others have nothing to do."""
        for _ in range(20):
            await asyncio.sleep(0)
            if event.is_set():
                return
        self.time.now_s += at_most_s

    def is_held(self, uid: str) -> bool:
        if not self.is_released:
            return uid in self.here
        node = self.nodes[uid]
        return node.startswith("numa") and any(
            other < uid and other not in self.done and self.nodes[other] == node
            for other in self.here
        )

    def handle(self, event: BindEvent) -> Answer | AnyStep:
        self.events.append(event)
        if isinstance(event, BindRequested):
            args = event.call.args
            assert args is not None
            uid, self.nodes[args.pod_uid] = args.pod_uid, args.node
            if not uid.startswith("m"):
                return self._write(uid, args.node)
            self.here.add(uid)
            self.is_released = self.is_released or len(self.here) == self.size
            return HoldBind(1, "default", uid, uid, args.node)
        if isinstance(event, BindHeld | BindAbandoned) and isinstance(event.step, HoldBind):
            step = event.step
            if self.is_released and isinstance(event, BindHeld):
                return self._write(step.uid, step.node)
            self.here.discard(step.uid)
            return Answer(Verb.BIND, Outcome.FAILED, b"{}", 1, pod_uid=step.uid)
        assert isinstance(event, BindingWritten)
        self.done.add(event.step.uid)
        return Answer(Verb.BIND, Outcome.OK, b"{}", 1, pod_uid=event.step.uid)

    def _write(self, uid: str, node: str) -> WriteBinding:
        return WriteBinding(1, "default", uid, uid, "7", node, {})

    async def get_pod(self, namespace: str, name: str, *, timeout_s: float) -> Any:
        raise AssertionError((namespace, name, timeout_s))

    async def bind(self, binding: Binding, *, timeout_s: float) -> None:
        assert timeout_s > 0.0
        self.timeouts_s.append(timeout_s)
        self.n_writing += 1
        self.most_writing = max(self.most_writing, self.n_writing)
        await asyncio.sleep(0)
        self.n_writing -= 1
        self.written.append(binding.pod.uid)

    def run(self, *calls: tuple[str, str]) -> list[Outcome]:
        """Bind calls of pods to nodes, all at once."""

        async def main() -> list[Outcome]:
            bodies = [bind_body(uid, node) for uid, node in calls]
            found = await asyncio.gather(*map(self.executor.bind, bodies))
            return [one.outcome for one in found]

        return asyncio.run(main())


def test_nothing_is_written_before_all_are_there():
    """Then all are, side by side, and no time has passed."""
    world = World(3)
    calls = [(f"m{i}", f"n{i}") for i in range(3)]
    assert world.run(*calls) == [Outcome.OK] * 3
    assert sorted(world.written) == ["m0", "m1", "m2"]
    assert world.most_writing == 3
    first = next(i for i, one in enumerate(world.events) if isinstance(one, BindHeld))
    assert sum(isinstance(one, BindRequested) for one in world.events[:first]) == 3
    assert world.time() == 100.0


def test_a_hold_ends_while_there_is_time_to_write():
    """A member that does not come: the others fail, nothing is written."""
    world = World(3)
    assert world.run(("m0", "n0"), ("m1", "n1")) == [Outcome.FAILED] * 2
    assert world.written == []
    assert world.time() - 100.0 == pytest.approx(0.75 * TOTAL_S)


def test_nothing_is_held_when_the_process_ends():
    """The process ends after the last bind: the next one would wait for those that are held."""
    world = World(2)

    async def main() -> Outcome:
        held = asyncio.create_task(world.executor.bind(bind_body("m0", "n0")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await world.executor.drain()
        return (await held).outcome

    assert asyncio.run(main()) is Outcome.FAILED
    assert world.written == []
    assert world.time() == 100.0


def test_others_are_bound_beside_binds_that_are_held():
    """Also on the same node."""
    world = World(2)
    assert world.run(("m0", "n0"), ("solo", "n0")) == [Outcome.FAILED, Outcome.OK]
    assert world.written == ["solo"]


def test_members_on_a_node_that_aligns_do_not_wait_for_each_other_for_ever():
    """The turn on the node begins once the group is released."""
    world = World(2)
    assert world.run(("m0", "numa-1"), ("m1", "numa-1")) == [Outcome.OK] * 2
    assert world.most_writing == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)], ids=str)
def test_members_on_a_node_that_aligns_are_written_in_the_order_of_their_plans(order):
    """Each was planned with what those before it leave; nobody waits for the clock."""
    world = World(3)
    assert world.run(*((f"m{i}", "numa-1") for i in order)) == [Outcome.OK] * 3
    assert world.written == ["m0", "m1", "m2"]
    assert world.time() == 100.0


def test_a_hold_that_is_interrupted_is_reported():
    """The engine must know that the call is gone."""
    world = World(2)

    async def main() -> None:
        body = bind_body("m0", "n0")
        executor = BindExecutor(replace(world.dependencies, wait=interrupted), total_s=TOTAL_S)
        with pytest.raises(asyncio.CancelledError):
            await executor.bind(body)

    async def interrupted(event: asyncio.Event, at_most_s: float) -> None:
        del event, at_most_s
        raise asyncio.CancelledError

    asyncio.run(main())
    abandoned = world.events[-1]
    assert isinstance(abandoned, BindAbandoned)
    assert abandoned.detail == "interrupted"


def test_waiting_ends_with_the_event_or_with_the_time():
    """As it is in the program, by the clock of the event loop."""
    wait: Any = BindDependencies.__dataclass_fields__["wait"].default

    async def main() -> None:
        event = asyncio.Event()
        await wait(event, 0.001)
        assert not event.is_set()
        event.set()
        await wait(event, 60.0)

    asyncio.run(main())
