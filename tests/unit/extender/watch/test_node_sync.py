"""Nodes with new machine types wait for them, each in its own order; the others do not."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.engine.events import NodeDeleted, NodesListed, NodeUpdated
from extender.watch import NodeSink, WatchLog
from kube.objects import NodeFacts, ObjectKey
from kube.watch import Fault
from tests.unit.extender.shells import DOWN, Log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.engine.events import StateEvent

KNOWN = NodeFacts("known", "u0", "", {}, None, None, has_soft_taint=False)
NEW = replace(KNOWN, name="new", topology="a machine")
OTHER = replace(KNOWN, name="other", topology="another machine")


class Stage:
    """A sink, and what it sent on. A topology is its own name here, and builds when `may_build`."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.begun = threading.Event()
        self.is_offered = asyncio.Event()
        self.built: list[Any] = []
        self.offered: set[Any] = set()
        self.may_build = threading.Event()
        self.may_build.set()
        self.fault: Exception | None = None
        self.n_changes = 0
        self._turn = asyncio.Event()
        self.log = Log()
        self.sink = NodeSink(self._handle, self, self._build, self._change, WatchLog(self.log))

    def unbuilt(self, facts: NodeFacts) -> Any:
        return facts.topology if facts.topology not in {None, *self.offered} else None

    def offer_machine(self, machine: Any) -> None:
        self.offered.add(machine)
        self.is_offered.set()

    def _handle(self, event: StateEvent) -> None:
        """The gateway's."""
        match event:
            case NodeUpdated(node):
                assert self.unbuilt(node) is None, "the state would have to build"
                self.received.append(node)
            case NodeDeleted(name):
                self.received.append(name)
            case NodesListed(nodes):
                assert not any(map(self.unbuilt, nodes)), "the state would have to build"
                self.received.append(nodes)
            case _:
                pytest.fail(f"{event} is no node's")

    def _build(self, topology: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        self.begun.set()
        self.may_build.wait(20)
        if self.fault is not None:
            raise self.fault
        self.built.append(topology)
        return topology

    def _change(self) -> None:
        self.n_changes += 1
        self._turn.set()

    def play(self, scene: Callable[[], Awaitable[None]]) -> None:
        """Run the sink as long as the scene lasts."""

        async def run() -> None:
            running = asyncio.create_task(self.sink.run())
            await scene()
            running.cancel()

        asyncio.run(run())

    async def building(self) -> None:
        """Wait until the first machine type is being built."""
        assert await asyncio.to_thread(self.begun.wait, 20)

    async def until_received(self, n_things: int) -> None:
        """Wait until so many were received."""
        async with asyncio.timeout(60):
            while len(self.received) < n_things:
                self._turn.clear()
                await self._turn.wait()


def test_a_list_is_handed_over_when_all_its_types_are_built():
    """Each type once, off the event loop: a list that is half there would refuse pods."""
    stage = Stage()
    nodes = [KNOWN, NEW, OTHER, replace(NEW, name="twin")]
    asyncio.run(stage.sink.replace(nodes))
    assert stage.received == [tuple(nodes)]
    assert stage.built == ["a machine", "another machine"]
    assert (stage.n_changes, stage.log.events) == (1, ["watch_listed"])


def test_a_node_waits_for_its_type_and_no_other_node_waits():
    """A new kind of machine joins a busy cluster: nothing stands still for it."""

    async def go() -> None:
        stage.may_build.clear()
        stage.sink.seen(NEW)
        stage.sink.seen(KNOWN)
        assert stage.received == [KNOWN]
        stage.may_build.set()
        await stage.until_received(2)

    stage = Stage()
    stage.play(go)
    assert (stage.received, stage.n_changes) == ([KNOWN, NEW], 2)


def test_a_node_is_shown_as_it_is_when_its_type_is_built():
    """Not as it was when the building began."""

    async def go() -> None:
        stage.may_build.clear()
        stage.sink.seen(NEW)
        stage.sink.seen(replace(NEW, zone="z2"))
        stage.may_build.set()
        await stage.until_received(1)

    stage = Stage()
    stage.play(go)
    assert stage.received == [replace(NEW, zone="z2")]


def test_a_node_that_changes_its_type_again_waits_for_the_last():
    """Each step is built, only the last is shown."""

    async def go() -> None:
        stage.may_build.clear()
        stage.sink.seen(NEW)
        await stage.building()
        stage.sink.seen(replace(NEW, topology="another machine"))
        stage.may_build.set()
        await stage.until_received(1)

    stage = Stage()
    stage.play(go)
    assert stage.received == [replace(NEW, topology="another machine")]


def test_a_node_that_leaves_while_its_type_is_built_is_not_shown():
    """Else it would stay for ever."""

    async def go() -> None:
        stage.may_build.clear()
        stage.sink.seen(NEW)
        await stage.building()
        stage.sink.gone(ObjectKey("", "new", "u0"))
        stage.sink.seen(OTHER)
        stage.may_build.set()
        await stage.until_received(2)

    stage = Stage()
    stage.play(go)
    assert stage.received == ["new", OTHER]


def test_a_node_that_loses_its_topology_while_it_is_built_is_shown_without():
    """The old picture must not come after the new one."""

    async def go() -> None:
        stage.may_build.clear()
        stage.sink.seen(NEW)
        await stage.building()
        stage.sink.seen(replace(NEW, topology=None))
        stage.may_build.set()
        async with asyncio.timeout(60):
            await stage.is_offered.wait()
        await asyncio.sleep(0)

    stage = Stage()
    stage.play(go)
    assert stage.received == [replace(NEW, topology=None)]


def test_a_machine_type_that_cannot_be_built_ends_the_sink():
    """Else its node would never appear, without a word."""
    stage = Stage()
    stage.fault = MemoryError()
    stage.sink.seen(NEW)
    with pytest.raises(MemoryError):
        asyncio.run(stage.sink.run())


def test_a_node_that_cannot_be_read_takes_no_pods():
    """What it can serve is not known; a fault without a name is only logged."""
    stage = Stage()
    stage.sink.unread(ObjectKey("", "new", "u0"), "allocatable is odd")
    stage.sink.unread(ObjectKey("", "", ""), "no name")
    assert stage.received == ["new"]
    assert stage.log.events == ["object_unreadable"] * 2


def test_a_failed_watch_is_logged():
    """With what comes next."""
    stage = Stage()
    stage.sink.failed(Fault("nodes", DOWN, 0.5, will_list=True))
    assert stage.log.lines == [
        {
            "event": "watch_error",
            "source": "nodes",
            "detail": str(DOWN),
            "delay_s": 0.5,
            "will_list": True,
        }
    ]
