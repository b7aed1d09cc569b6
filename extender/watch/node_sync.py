"""Shows nodes to the live state, each with its machine type built.

What it answers: nothing; it carries nodes from their watch to the desk, in each node's own order. A
new machine type takes up to a second of work, which is done in a thread, so that requests go on;
the nodes that need it are shown when it is there, as they are by then, and the others at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from extender.snapshot import MachineType
    from extender.watch.watch_log import WatchLog
    from kube.objects import NodeFacts, ObjectKey
    from kube.watch import Fault
    from topology.model import NodeTopology

__all__ = ["Machines", "NodeDesk", "NodeSink", "NodeTools"]

_SOURCE = "nodes"
_MANY = 100
"""Nodes looked at before others are let run; a topology that was seen before is a look-up."""


class Machines(Protocol):
    """What the sink needs of `extender.state` to learn which machine types are to be built."""

    def unbuilt(self, facts: NodeFacts) -> NodeTopology | None:
        """The topology whose machine type is not known yet, None if there is none."""
        ...

    def offer_machine(self, machine: MachineType) -> None:
        """A machine type that was built."""
        ...


class NodeDesk(Protocol):
    """What the sink needs of `extender.decision_log.gateway`."""

    def see_node(self, node: NodeFacts) -> None:
        """A node as the watch shows it."""
        ...

    def lose_node(self, name: str) -> None:
        """A node is gone."""
        ...

    def replace_nodes(self, nodes: Sequence[NodeFacts]) -> None:
        """All nodes."""
        ...


@dataclass(frozen=True, slots=True)
class NodeTools:
    """What the sink stands on. `build` is called in a thread, one at a time."""

    desk: NodeDesk
    machines: Machines
    build: Callable[[NodeTopology], MachineType]
    changed: Callable[[], None]
    log: WatchLog


class NodeSink:
    """A `kube.watch.reflector.Sink` of nodes."""

    def __init__(self, tools: NodeTools) -> None:
        self._tools = tools
        self._waiting: dict[str, NodeFacts] = {}
        self._building: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def replace(self, objects: Sequence[NodeFacts]) -> None:
        """Take all nodes, once every machine type among them is built."""
        self._waiting.clear()
        for n, node in enumerate(objects):
            await self._build(node)
            if n % _MANY == 0:
                await asyncio.sleep(0)
        self._waiting.clear()
        self._tools.log.listed(_SOURCE, len(objects))
        self._tools.desk.replace_nodes(objects)
        self._tools.changed()

    def seen(self, one: NodeFacts) -> None:
        """Take a node that is new or has changed."""
        if self._tools.machines.unbuilt(one) is None:
            self._waiting.pop(one.name, None)
            self._tools.desk.see_node(one)
            self._tools.changed()
            return
        self._waiting[one.name] = one
        if self._building is None or self._building.done():
            self._building = asyncio.create_task(self._build_waiting())

    def gone(self, key: ObjectKey) -> None:
        """A node left."""
        self._waiting.pop(key.name, None)
        self._tools.desk.lose_node(key.name)
        self._tools.changed()

    def unread(self, key: ObjectKey, reason: str) -> None:
        """A node that cannot be read takes no pods: what it can serve is not known."""
        self._tools.log.unread(_SOURCE, key, reason)
        if key.name:
            self.gone(key)

    def failed(self, fault: Fault) -> None:
        """The watch failed and will be tried again."""
        self._tools.log.failed(fault)

    async def _build_waiting(self) -> None:
        while self._waiting:
            name = next(iter(self._waiting))
            await self._build(self._waiting[name])
            # It may have changed or gone while we built.
            node = self._waiting.get(name)
            if node is not None and self._tools.machines.unbuilt(node) is None:
                del self._waiting[name]
                self._tools.desk.see_node(node)
                self._tools.changed()

    async def _build(self, node: NodeFacts) -> None:
        async with self._one_at_a_time:
            topology = self._tools.machines.unbuilt(node)
            if topology is not None:
                machine = await asyncio.to_thread(self._tools.build, topology)
                self._tools.machines.offer_machine(machine)
