"""Hands nodes from their watch to the gateway, each with its machine type built.

Each node's own order is kept. A new machine type takes up to a second of work, which is done in a
thread, so that requests go on; the nodes that need it are handed over when it is there, as they are
by then, and the others at once. `NodeSink.run` does that work: should it fail, so does its caller.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from extender.engine.events import NodeDeleted, NodesListed, NodeUpdated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from extender.engine.events import StateEvent
    from extender.snapshot import MachineType
    from extender.watch.watch_log import WatchLog
    from kube.objects import NodeFacts, ObjectKey
    from kube.watch import Fault
    from topology.model import NodeTopology

__all__ = ["Machines", "NodeSink"]

_SOURCE = "nodes"
_MANY = 100
"""Nodes looked at before others are let run; a topology that was seen before is a look-up."""


class Machines(Protocol):
    """The live cluster, as far as it knows which machine types are to be built."""

    def unbuilt(self, facts: NodeFacts) -> NodeTopology | None:
        """The topology whose machine type is not known yet, None if there is none."""
        ...

    def offer_machine(self, machine: MachineType) -> None:
        """A machine type that was built."""
        ...


@dataclass(eq=False)
class NodeSink:
    """A `kube.watch.reflector.Sink` of nodes. `run` beside the watch, until cancelled.

    `handle` is the gateway's; `build` runs in a thread, one at a time.
    """

    handle: Callable[[StateEvent], None]
    machines: Machines
    build: Callable[[NodeTopology], MachineType]
    changed: Callable[[], None]
    log: WatchLog

    def __post_init__(self) -> None:
        self._waiting: dict[str, NodeFacts] = {}
        self._must_build = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    async def replace(self, objects: Sequence[NodeFacts]) -> None:
        """Take all nodes, once every machine type among them is built."""
        self._waiting.clear()
        for n, node in enumerate(objects):
            await self._build(node)
            if n % _MANY == 0:
                await asyncio.sleep(0)
        self._waiting.clear()
        self.log.listed(_SOURCE, len(objects))
        self.handle(NodesListed(tuple(objects)))
        self.changed()

    def seen(self, one: NodeFacts) -> None:
        """Take a node that is new or has changed."""
        if self.machines.unbuilt(one) is None:
            self._waiting.pop(one.name, None)
            self.handle(NodeUpdated(one))
            self.changed()
            return
        self._waiting[one.name] = one
        self._must_build.set()

    def gone(self, key: ObjectKey) -> None:
        """A node left."""
        self._waiting.pop(key.name, None)
        self.handle(NodeDeleted(key.name))
        self.changed()

    def unread(self, key: ObjectKey, reason: str) -> None:
        """A node that cannot be read takes no pods: what it can serve is not known."""
        self.log.unread(_SOURCE, key, reason)
        if key.name:
            self.gone(key)

    def failed(self, fault: Fault) -> None:
        """The watch failed and will be tried again."""
        self.log.failed(fault)

    async def run(self) -> None:
        """Build the machine types that nodes wait for, until cancelled."""
        while True:
            await self._must_build.wait()
            self._must_build.clear()
            await self._build_waiting()

    async def _build_waiting(self) -> None:
        while self._waiting:
            name = next(iter(self._waiting))
            await self._build(self._waiting[name])
            # It may have changed or gone while we built.
            node = self._waiting.get(name)
            if node is not None and self.machines.unbuilt(node) is None:
                del self._waiting[name]
                self.handle(NodeUpdated(node))
                self.changed()

    async def _build(self, node: NodeFacts) -> None:
        async with self._one_at_a_time:
            topology = self.machines.unbuilt(node)
            if topology is not None:
                machine = await asyncio.to_thread(self.build, topology)
                self.machines.offer_machine(machine)
