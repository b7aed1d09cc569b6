"""Binds pods: does what the engine's steps ask of the API server, within the time there is.

What it answers: a bind call, by running `begin_bind` and then each step to its end. It never
chooses anything (`extender.bind.state_machine`) and never takes more time than the scheduler waits:
after the deadline the engine is told that the step was not finished, and the pod is tried again.

A caller that hangs up changes nothing: a binding that is under way is finished, because the ledger
must learn how it ended. Reads, and writes that certainly were not made (nothing was sent, or the
server was too busy), are tried again while there is time; a write whose end is unknown never is,
since the engine looks first.

Where a kubelet aligns to NUMA nodes, binds to one node take turns: it confines each pod by what
those before it have left, so the order in which plans were made must be that in which they are
written. It decides by what is free when it admits. A pod that ends after a plan was made may thus
have turned the planned pod to other GPUs, and nobody knows until the node's agent has told: the
next bind to that node rests until then (`REST_S`). Elsewhere any number runs side by side.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from extender.bind import ReadPod, WriteBinding, WriteResult, Written
from extender.protocol import Answer
from kube.client import Binding
from kube.errors import Conflict, KubeError, Malformed, NotFound, Unreachable
from kube.objects import ObjectKey
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.bind import Step
    from kube.objects import PodObject
    from kube.watch import Backoff

__all__ = ["BindDesk", "BindTools", "Binder", "BindingApi", "Bound"]

_End: TypeAlias = "Callable[[float], Answer | Step]"
"""Tells the engine how a step ended; takes the time."""

WRITE_SHARE = 0.75
"""Share of the time left that a write may take, so that after a write of unknown end there is time
to look."""
LEAST_S = 0.02
"""With less time than this a request is not begun: a round trip to an API server takes some
milliseconds."""
REST_S = 2.0
"""From a binding until it is known which GPUs the pod really got, where that may differ from its
plan. After the kubelet's Allocate the agent looks within 0.3 s and writes 0.1 s later (its pace in
plugin.publish.report_loop and plugin.publish.node_annotator); the rest is for the kubelet to admit
the pod and for requests on a busy machine. Chosen, and tried at this length alone (ADR 0008)."""
REST_SHARE = 0.5
"""Share of a bind's time that it may rest at most."""
_TOO_BUSY = 429


class BindDesk(Protocol):
    """What the binder needs of `extender.decision_log.gateway`."""

    def turn_of(self, body: bytes) -> str | None:
        """The node where this bind must await its turn; None where it need not."""
        ...

    def n_ended(self, node: str) -> int:
        """How many pods ended on the node so far."""
        ...

    def begin_bind(self, body: bytes, now_s: float) -> Answer | Step:
        """A bind call came."""
        ...

    def pod_read(self, step: ReadPod, pod: bytes | None, now_s: float) -> Answer | Step:
        """The pod as the API server gave it."""
        ...

    def binding_written(self, step: WriteBinding, written: Written, now_s: float) -> Answer | Step:
        """How the write ended."""
        ...

    def abandon(self, step: Step, detail: str, now_s: float) -> Answer:
        """The step will not be finished."""
        ...


class BindingApi(Protocol):
    """What the binder needs of `kube.client.server`."""

    async def get_pod(self, namespace: str, name: str, *, timeout_s: float) -> PodObject | None:
        """Read a pod by a quorum read; None where it is not there. Raises `KubeError`."""
        ...

    async def bind(self, binding: Binding, *, timeout_s: float) -> None:
        """Create the Binding. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """An answer, and the part of its time that was ours and not the API server's.

    `plan_text` is the plan that was written with the binding, if one was.
    """

    answer: Answer
    own_s: float
    plan_text: str | None = None


@dataclass(frozen=True, slots=True)
class BindTools:
    """What a bind stands on. `timer` is monotonic, `clock` the engine's time, in seconds."""

    desk: BindDesk
    api: BindingApi
    clock: Callable[[], float]
    timer: Callable[[], float]
    backoff: Callable[[], Backoff]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Binder:
    """Runs binds, any number at a time; each has `total_s` for everything, its turn included."""

    def __init__(self, tools: BindTools, *, total_s: float) -> None:
        self._tools = tools
        self._total_s = total_s
        self._running: set[asyncio.Task[Bound]] = set()
        # By node, as long as somebody has the turn or awaits it, or may have to rest.
        self._lanes: dict[str, _Lane] = {}

    async def bind(self, body: bytes, *, at_most_s: float = math.inf) -> Bound:
        """Answer a bind call; `at_most_s` is another bound on its time."""
        deadline_s = self._tools.timer() + min(self._total_s, at_most_s)
        task = asyncio.create_task(self._run(body, deadline_s))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _run(self, body: bytes, deadline_s: float) -> Bound:
        bind = _Bind(self._tools, deadline_s)
        node = self._tools.desk.turn_of(body)
        if node is None:
            return await bind.run(body)
        for name in [name for name, lane in self._lanes.items() if self._is_idle(lane)]:
            del self._lanes[name]
        lane = self._lanes.setdefault(node, _Lane())
        async with lane.turn:
            if lane.n_ended != self._tools.desk.n_ended(node):
                await bind.rest(until_s=lane.bound_s + REST_S)
            n_ended = self._tools.desk.n_ended(node)
            bound = await bind.run(body)
            if bound.plan_text is not None:
                lane.bound_s, lane.n_ended = self._tools.timer(), n_ended
            return bound

    def _is_idle(self, lane: _Lane) -> bool:
        return not lane.turn.locked() and self._tools.timer() >= lane.bound_s + REST_S

    async def drain(self) -> None:
        """Wait for the binds that are under way; each ends within its time."""
        while self._running:
            await asyncio.wait(self._running)


@dataclass(slots=True)
class _Lane:
    """Binds to one node that aligns: when the last was written, and who had ended before it."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    bound_s: float = -math.inf
    n_ended: int = 0


class _Bind:
    """One bind call."""

    def __init__(self, tools: BindTools, deadline_s: float) -> None:
        self._tools = tools
        self._deadline_s = deadline_s
        self._backoff = tools.backoff()
        self._remote_s = 0.0
        self._plan_text: str | None = None

    async def run(self, body: bytes) -> Bound:
        began_s = self._tools.timer()
        said = self._tools.desk.begin_bind(body, self._tools.clock())
        while not isinstance(said, Answer):
            said = await self._take(said)
        own_s = self._tools.timer() - began_s - self._remote_s
        return Bound(said, own_s, self._plan_text)

    async def rest(self, *, until_s: float) -> None:
        """Let time pass, but not more than there is to spare."""
        rest_s = min(until_s - self._tools.timer(), self._left_s * REST_SHARE)
        if rest_s > 0:
            await self._tools.sleep(rest_s)

    async def _take(self, step: Step) -> Answer | Step:
        """Take one step; whatever happens, the engine hears of it exactly once."""
        before_s = self._tools.timer()
        try:
            ended = await (self._read(step) if isinstance(step, ReadPod) else self._write(step))
        except BaseException:
            self._tools.desk.abandon(step, "interrupted", self._tools.clock())
            raise
        self._remote_s += self._tools.timer() - before_s
        return ended(self._tools.clock())

    async def _read(self, step: ReadPod) -> _End:
        desk = self._tools.desk
        while True:
            left_s = self._left_s
            if left_s < LEAST_S:
                return partial(desk.abandon, step, _OUT_OF_TIME)
            try:
                pod = await self._tools.api.get_pod(step.namespace, step.name, timeout_s=left_s)
            except KubeError as error:
                may_work = error.is_transient and not isinstance(error, Malformed)
                if not (may_work and await self._wait(error)):
                    return partial(desk.abandon, step, str(error))
            else:
                return partial(desk.pod_read, step, None if pod is None else pod.body)

    async def _write(self, step: WriteBinding) -> _End:
        desk = self._tools.desk
        pod = ObjectKey(step.namespace, step.name, step.uid)
        binding = Binding(pod, step.resource_version, step.node, step.annotations)
        while True:
            left_s = self._left_s * WRITE_SHARE
            if left_s < LEAST_S:
                return partial(desk.abandon, step, _OUT_OF_TIME)
            try:
                await self._tools.api.bind(binding, timeout_s=left_s)
            except KubeError as error:
                is_unsent = isinstance(error, Unreachable) or error.status == _TOO_BUSY
                if not (is_unsent and await self._wait(error)):
                    return partial(desk.binding_written, step, _written(error))
            else:
                self._plan_text = step.annotations.get(names.PLAN)
                return partial(desk.binding_written, step, Written(WriteResult.ACCEPTED))

    @property
    def _left_s(self) -> float:
        return self._deadline_s - self._tools.timer()

    async def _wait(self, error: KubeError) -> bool:
        """Wait before the next try; False where there is no time for one."""
        delay_s = self._backoff.next_s(asked_s=error.retry_after_s)
        if delay_s + LEAST_S / WRITE_SHARE > self._left_s:
            return False
        await self._tools.sleep(delay_s)
        return True


_OUT_OF_TIME = "no time left before the scheduler stops waiting"


def _written(error: KubeError) -> Written:
    if isinstance(error, Conflict):
        result = WriteResult.CONFLICT
    elif isinstance(error, NotFound):
        result = WriteResult.GONE
    elif isinstance(error, Unreachable) or 400 <= error.status < 500:  # noqa: PLR2004 - HTTP's
        result = WriteResult.REJECTED
    else:
        result = WriteResult.UNKNOWN
    return Written(result, str(error))
