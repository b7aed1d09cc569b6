"""Executes preemptions: reads from the API server what the steps name, within a deadline.

It answers a preempt call by taking each step to its end. It never chooses anything
(`extender.preemption.state_machine`) and never takes more time than the scheduler waits: at the
deadline the state machine gets what was read until then.

All nodes of a step are read at once. A node that cannot be read is left out; without the disruption
budgets no pod is evicted but those that the scheduler chose itself. The scheduler does not retry
soon (`extender.preemption.state_machine`), so a state that is not fresh is waited for, and what may
work a little later is retried, both as long as there is time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from extender.engine.events import PreemptAbandoned, PreemptNodesRead, PreemptRequested
from extender.preemption import NodeReading, NodesRead, capacity_of, read_pod_on_node
from extender.protocol import Answer
from kube.errors import KubeError, Malformed, Unreadable
from topology.model import parse_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from fractions import Fraction

    from extender.engine.events import PreemptEvent
    from extender.preemption import ReadNodes
    from kube.objects import DisruptionBudget, PodObject
    from kube.watch import Backoff

__all__ = ["PreemptDependencies", "PreemptExecutor"]

ANSWER_SHARE = 0.9
"""Share of the time there is in which must be read; the rest is for choosing victims, which takes
some milliseconds for a node, and for the way back."""


class NodeApi(Protocol):
    """What preemptions need of `kube.client.server`. Every method raises `KubeError`."""

    async def get_allocatable(self, name: str) -> Mapping[str, Fraction] | None:
        """What a node can give to pods; None where there is no such node."""
        ...

    async def list_pods_on(self, node: str) -> Sequence[PodObject]:
        """All pods of a node."""
        ...

    async def list_pdbs(self) -> Sequence[DisruptionBudget]:
        """All disruption budgets."""
        ...


@dataclass(frozen=True, slots=True)
class PreemptDependencies:
    """What preemptions need. `timer` is monotonic, `clock` the engine's time, in seconds.

    `handle` is the gateway's, `is_ready` returns whether the state is fresh.
    """

    handle: Callable[[PreemptEvent], Answer | ReadNodes]
    api: NodeApi
    is_ready: Callable[[], bool]
    clock: Callable[[], float]
    timer: Callable[[], float]
    backoff: Callable[[], Backoff]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class PreemptExecutor:
    """Runs preemptions; each has `total_s` for everything."""

    def __init__(self, deps: PreemptDependencies, *, total_s: float) -> None:
        self._deps = deps
        self._total_s = total_s

    async def preempt(self, body: bytes) -> Answer:
        """Answer a preempt call."""
        deps = self._deps
        began_s = deps.timer()
        deadline_s = began_s + ANSWER_SHARE * self._total_s
        while not deps.is_ready() and deps.timer() + _LOOK_S < deadline_s:
            await deps.sleep(_LOOK_S)
        remote_s = deps.timer() - began_s
        output = deps.handle(PreemptRequested(body, deps.clock()))
        while not isinstance(output, Answer):
            before_s = deps.timer()
            try:
                read = await _Reading(deps).read(output, deadline_s - before_s)
            except BaseException:
                deps.handle(PreemptAbandoned(output, "interrupted", deps.clock()))
                raise
            remote_s += deps.timer() - before_s
            if isinstance(read, str):
                output = deps.handle(PreemptAbandoned(output, read, deps.clock()))
            else:
                output = deps.handle(PreemptNodesRead(output, read, deps.clock()))
        return replace(output, own_s=deps.timer() - began_s - remote_s)


class _Reading:
    """The reading of one step: what has been found, and what went wrong."""

    def __init__(self, deps: PreemptDependencies) -> None:
        self._deps = deps
        self._nodes: dict[str, NodeReading] = {}
        self._budgets: tuple[DisruptionBudget, ...] | None = None
        self._fault = ""

    async def read(self, step: ReadNodes, left_s: float) -> NodesRead | str:
        """Read nodes and budgets side by side; or return why nothing was read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s), asyncio.TaskGroup() as group:
                group.create_task(self._patiently("disruption budgets", self._read_budgets))
                for name in step.names:
                    read = partial(self._read_node, name)
                    group.create_task(self._patiently(f"node {name}", read))
        if self._budgets is None:
            return self._fault or _OUT_OF_TIME
        found = tuple(self._nodes[name] for name in step.names if name in self._nodes)
        return NodesRead(found, self._budgets, self._fault)

    async def _patiently(self, what: str, read: Callable[[], Awaitable[None]]) -> None:
        """Read, and read again while that may work."""
        backoff = self._deps.backoff()
        while True:
            try:
                await read()
            except (KubeError, Unreadable) as error:
                self._fault = f"{what}: {error}"
                if isinstance(error, Malformed | Unreadable) or not error.is_transient:
                    return
                await self._deps.sleep(backoff.next_s(retry_after_s=error.retry_after_s))
            else:
                return

    async def _read_budgets(self) -> None:
        self._budgets = tuple(await self._deps.api.list_pdbs())

    async def _read_node(self, name: str) -> None:
        allocatable = await self._deps.api.get_allocatable(name)
        if allocatable is None:
            raise Unreadable(_GONE)
        pods = await self._deps.api.list_pods_on(name)
        found = tuple(read_pod_on_node(parse_object(pod.body)) for pod in pods)
        self._nodes[name] = NodeReading(name, capacity_of(allocatable), found)


_LOOK_S = 0.05
"""Between two looks at whether the state is fresh."""
_GONE = "it is gone"
_OUT_OF_TIME = "no time left before the scheduler stops waiting"
