"""Executes binds: does the requests to the API server that the steps name, within a deadline.

It answers a bind call by taking each step to its end. It never chooses anything
(`extender.bind.state_machine`) and never takes more time than the scheduler waits: a step that is
not finished by the deadline is abandoned, and the scheduler retries the pod.

A caller that hangs up may be a kube-scheduler that has ended, and another one may lead soon, with
another extender: nothing is begun or held any more for it. What is in flight is finished, because
the state must learn how it ended. Reads, and writes that certainly were not made (nothing was sent,
or the server was too busy), are tried again while there is time; a write whose end is unknown never
is, since the engine looks first.

Where a kubelet aligns to NUMA nodes, binds to one node take turns: it confines each pod by what
those before it have left, so the order in which plans were made must be that in which they are
written. It decides by what is free when it admits. A pod that ends after a plan was made may thus
have turned the planned pod to other GPUs, which is unknown until the node's plugin has reported:
the next bind to that node rests until then (`REST_S`). Elsewhere any number runs side by side.

A bind that is held for the other members of its pod's group takes no turn meanwhile: two members on
one such node would wait for each other. Those of one group take turns in the order of their plans.

From the signal that ends the process nothing is held any more: the next process would wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from extender.bind import BindCall, HoldBind, ReadPod, WriteBinding, WriteResult, Written
from extender.engine.events import (
    BindAbandoned,
    BindHeld,
    BindingWritten,
    BindPodRead,
    BindRequested,
)
from extender.protocol import Answer
from kube.client import Binding
from kube.errors import Conflict, KubeError, Malformed, NotFound, Unreachable
from kube.objects import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.bind import AnyStep
    from extender.engine.events import BindEvent
    from kube.objects import PodObject
    from kube.watch import Backoff

__all__ = ["BindDependencies", "BindExecutor"]

_End: TypeAlias = "Callable[[float], BindEvent]"
"""How a step ended; takes the time."""

WRITE_SHARE = 0.75
"""Share of the time left that a write may take, so that after a write of unknown end there is time
to look."""
LEAST_S = 0.02
"""With less time than this a request is not begun: a round trip to an API server takes some
milliseconds."""
REST_S = 2.0
"""From a binding until it is known which GPUs the pod really got, where that may differ from its
plan. After the kubelet's Allocate the plugin looks within 0.3 s and writes 0.1 s later (its pace in
plugin.publish.report_loop and plugin.publish.node_annotator); the rest is for the kubelet to admit
the pod and for requests on a busy machine. Chosen, and tried at this length alone (ADR 0008)."""
HOLD_SHARE = 0.75
"""Share of the time left for which a bind is held at most, so that the Binding can be written."""
LOOK_AGAIN_S = 0.25
"""After which a bind that is held looks again, whatever it was told: its claim may have ended."""
REST_SHARE = 0.5
"""Share of a bind's time that it may rest at most."""
_TOO_BUSY = 429


class BindingApi(Protocol):
    """What binds need of `kube.client.server`."""

    async def get_pod(self, namespace: str, name: str, *, timeout_s: float) -> PodObject | None:
        """Read a pod by a quorum read; None where it is not there. Raises `KubeError`."""
        ...

    async def bind(self, binding: Binding, *, timeout_s: float) -> None:
        """Create the Binding. Raises `KubeError`."""
        ...


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            await event.wait()


@dataclass(frozen=True, slots=True)
class BindDependencies:
    """What binds need. `timer` is monotonic, `clock` the engine's time, in seconds.

    `handle` is the gateway's. `is_member` and `is_held` are the groups': whether a pod is one of a
    group, and whether its bind call still waits for the others'. `aligns` and `n_ended` are the
    live cluster's: whether a node's kubelet confines pods to NUMA nodes, and how many pods ended
    there so far. `wait` waits for an event, or for so long.
    """

    handle: Callable[[BindEvent], Answer | AnyStep]
    api: BindingApi
    aligns: Callable[[str], bool]
    n_ended: Callable[[str], int]
    clock: Callable[[], float]
    timer: Callable[[], float]
    backoff: Callable[[], Backoff]
    is_member: Callable[[str], bool] = lambda _: False
    is_held: Callable[[str], bool] = lambda _: False
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    wait: Callable[[asyncio.Event, float], Awaitable[None]] = _wait


class BindExecutor:
    """Runs binds, any number at a time; each has `total_s` for everything, its turn included."""

    def __init__(self, deps: BindDependencies, *, total_s: float) -> None:
        self._deps = deps
        self._total_s = total_s
        self._running: set[asyncio.Task[Answer]] = set()
        # By node, as long as a bind runs or waits there, or the node's pause lasts.
        self._lanes: dict[str, _Lane] = {}
        self._arrivals = _Arrivals()

    async def bind(self, body: bytes) -> Answer:
        """Answer a bind call; one that is cancelled, its caller gone, ends as soon as it can."""
        call = BindCall.decode(body)
        bind = _Bind(self._deps, call, self._deps.timer() + self._total_s)
        task = asyncio.create_task(self._run(bind, call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            bind.hurry()
            return await asyncio.shield(task)

    async def _run(self, bind: _Bind, call: BindCall) -> Answer:
        if call.args is None or not self._deps.is_member(call.args.pod_uid):
            return await self._run_in_turn(bind, None if call.args is None else call.args.node)
        await bind.wait_for_group(self._arrivals)
        try:
            return await self._run_in_turn(bind, call.args.node)
        finally:
            self._arrivals.notify()  # the next one on a node that aligns

    async def _run_in_turn(self, bind: _Bind, node: str | None) -> Answer:
        if node is None or not self._deps.aligns(node):
            return await bind.run()
        for name in [name for name, lane in self._lanes.items() if self._is_idle(lane)]:
            del self._lanes[name]
        lane = self._lanes.setdefault(node, _Lane())
        lane.n_binds += 1
        try:
            async with lane.turn:
                return await self._run_alone(bind, node, lane)
        finally:
            lane.n_binds -= 1

    async def _run_alone(self, bind: _Bind, node: str, lane: _Lane) -> Answer:
        if lane.n_ended != self._deps.n_ended(node):
            await bind.rest(until_s=lane.bound_s + REST_S)
        n_ended = self._deps.n_ended(node)
        bound = await bind.run()
        if bound.plan is not None:
            lane.bound_s, lane.n_ended = self._deps.timer(), n_ended
        return bound

    def _is_idle(self, lane: _Lane) -> bool:
        return lane.n_binds == 0 and self._deps.timer() >= lane.bound_s + REST_S

    def end_holds(self) -> None:
        """Hold no bind from now on: those that are held get their errors."""
        self._arrivals.end()

    async def drain(self) -> None:
        """Wait for the binds in flight; each ends within its time, and none is held any more."""
        self.end_holds()
        while self._running:
            await asyncio.wait(self._running)


class _Arrivals:
    """Tells binds that are held that another member's bind call has come, or was answered.

    `are_over`: no more will come.
    """

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.are_over = False

    def notify(self) -> None:
        """Wake all that wait."""
        self.event.set()
        self.event = asyncio.Event()

    def end(self) -> None:
        """Wake all that wait, for the last time."""
        self.are_over = True
        self.notify()


@dataclass(slots=True)
class _Lane:
    """Binds to one node that aligns: when the last was written, and who had ended before it.

    `n_binds` run or wait; the lock alone does not show it, as it is free until a waiter wakes up.
    """

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    n_binds: int = 0
    bound_s: float = -math.inf
    n_ended: int = 0


class _Bind:
    """One bind call."""

    def __init__(self, deps: BindDependencies, call: BindCall, deadline_s: float) -> None:
        self._deps = deps
        self._call = call
        self._deadline_s = deadline_s
        self._backoff: Backoff | None = None
        self._remote_s = 0.0
        self._begun: Answer | AnyStep | None = None

    async def wait_for_group(self, arrivals: _Arrivals) -> None:
        """Begin, and wait until the bind calls of all members are there, or time is short."""
        output = self._deps.handle(BindRequested(self._call, self._deps.clock()))
        arrivals.notify()
        self._begun = output
        if not isinstance(output, HoldBind):
            return
        until_s = self._deps.timer() + self._left_s * HOLD_SHARE
        try:
            while self._deps.is_held(output.uid) and not arrivals.are_over:
                if (left_s := min(until_s, self._deadline_s) - self._deps.timer()) <= 0:
                    break
                await self._deps.wait(arrivals.event, min(left_s, LOOK_AGAIN_S))
        except BaseException:
            self._deps.handle(BindAbandoned(output, "interrupted", self._deps.clock()))
            raise

    def hurry(self) -> None:
        """Begin nothing more."""
        self._deadline_s = self._deps.timer()

    async def run(self) -> Answer:
        began_s = self._deps.timer()
        output = self._begun
        if output is None:
            output = self._deps.handle(BindRequested(self._call, self._deps.clock()))
        elif isinstance(output, HoldBind):
            output = self._deps.handle(BindHeld(output, self._deps.clock()))
        while not isinstance(output, Answer):
            output = await self._take(output)
        own_s = self._deps.timer() - began_s - self._remote_s
        return replace(output, own_s=own_s)

    async def rest(self, *, until_s: float) -> None:
        """Let time pass, but not more than there is to spare."""
        rest_s = min(until_s - self._deps.timer(), self._left_s * REST_SHARE)
        if rest_s > 0:
            await self._deps.sleep(rest_s)

    async def _take(self, step: AnyStep) -> Answer | AnyStep:
        """Take one step; whatever happens, the gateway gets exactly one event of its end."""
        before_s = self._deps.timer()
        try:
            ended = await self._end_of(step)
        except BaseException:
            self._deps.handle(BindAbandoned(step, "interrupted", self._deps.clock()))
            raise
        self._remote_s += self._deps.timer() - before_s
        return self._deps.handle(ended(self._deps.clock()))

    async def _end_of(self, step: AnyStep) -> _End:
        if isinstance(step, ReadPod):
            return await self._read(step)
        if isinstance(step, HoldBind):  # its wait is over before its turn
            return partial(BindHeld, step)
        return await self._write(step)

    async def _read(self, step: ReadPod) -> _End:
        while True:
            left_s = self._left_s
            if left_s < LEAST_S:
                return partial(BindAbandoned, step, _OUT_OF_TIME)
            try:
                pod = await self._deps.api.get_pod(step.namespace, step.name, timeout_s=left_s)
            except KubeError as error:
                may_work = error.is_transient and not isinstance(error, Malformed)
                if not (may_work and await self._wait(error)):
                    return partial(BindAbandoned, step, str(error))
            else:
                return partial(BindPodRead, step, None if pod is None else pod.body)

    async def _write(self, step: WriteBinding) -> _End:
        pod = ObjectKey(step.namespace, step.name, step.uid)
        binding = Binding(pod, step.resource_version, step.node, step.annotations)
        while True:
            left_s = self._left_s * WRITE_SHARE
            if left_s < LEAST_S:
                return partial(BindingWritten, step, Written(WriteResult.UNSENT, _OUT_OF_TIME))
            try:
                await self._deps.api.bind(binding, timeout_s=left_s)
            except KubeError as error:
                is_unsent = isinstance(error, Unreachable) or error.status == _TOO_BUSY
                if not (is_unsent and await self._wait(error)):
                    return partial(BindingWritten, step, _written(error))
            else:
                return partial(BindingWritten, step, Written(WriteResult.ACCEPTED))

    @property
    def _left_s(self) -> float:
        return self._deadline_s - self._deps.timer()

    async def _wait(self, error: KubeError) -> bool:
        """Wait before the next try; False where there is no time for one."""
        if self._backoff is None:
            self._backoff = self._deps.backoff()
        delay_s = self._backoff.next_s(retry_after_s=error.retry_after_s)
        if delay_s + LEAST_S / WRITE_SHARE > self._left_s:
            return False
        await self._deps.sleep(delay_s)
        return True


_OUT_OF_TIME = "no time left before the scheduler stops waiting"


def _written(error: KubeError) -> Written:
    if isinstance(error, Conflict):
        result = WriteResult.CONFLICT
    elif isinstance(error, NotFound):
        result = WriteResult.GONE
    elif isinstance(error, Unreachable):
        result = WriteResult.UNSENT
    elif 400 <= error.status < 500:  # noqa: PLR2004 - HTTP's
        result = WriteResult.REJECTED
    else:
        result = WriteResult.UNKNOWN
    return Written(result, str(error))
