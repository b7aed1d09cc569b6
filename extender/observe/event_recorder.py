"""Writes what users are told: Events, and the annotation of what was really allocated.

What it answers: nothing; it writes in the background and holds nobody up. The same sentence about
the same object is written once in `AGAIN_S`; no more than a few Events a second are written, and of
what does not fit into the queue only the number is kept. Annotations are not dropped: the latest of
each pod is tried until it is there or the pod is gone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from extender import logkeys
from kube.client import ObjectEvent
from kube.errors import KubeError, NotFound
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from extender.log import Logger
    from extender.observe.events import Note
    from extender.state import Agreement, Mismatch
    from kube.watch import Backoff

__all__ = ["Level", "ReportApi", "Reporter", "ReporterTools"]

Level: TypeAlias = Literal["off", "warnings", "all"]
"""Which Events are written; Normal ones only with `all`."""

MAX_WAITING = 1_000
"""Events in the queue: at `PAUSE_S` each, a minute's worth."""
MAX_TOLD = 20_000
"""Sentences that are remembered as told."""
AGAIN_S = 3_000.0
"""Before a sentence is told again. Events live an hour (kube-apiserver --event-ttl): as long as it
is true, there is one to be seen."""
PAUSE_S = 0.05
"""Between two Events: 20 a second; kube-scheduler's own client is held to 50 requests a second
(componentconfig v1 defaults, ClientConnection.QPS)."""
COMPONENT = "coterie-extender"


class ReportApi(Protocol):
    """What is needed of `kube.client.server`."""

    async def create_event(self, event: ObjectEvent) -> None:
        """Write an Event. Raises `KubeError`."""
        ...

    async def annotate_pod(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> object:
        """Set annotations. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class ReporterTools:
    """What a reporter stands on. `instance` names this process, `now` is for people to read."""

    api: ReportApi
    instance: str
    now: Callable[[], datetime]
    timer: Callable[[], float]
    log: Logger
    backoff: Callable[[], Backoff]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Reporter:
    """Takes notes with `tell` and `annotate`, writes them in `run`."""

    def __init__(self, tools: ReporterTools, *, level: Level) -> None:
        self._tools = tools
        self._level = level
        self._notes: asyncio.Queue[Note] = asyncio.Queue(MAX_WAITING)
        self._told: OrderedDict[Note, float] = OrderedDict()
        self._allocated: OrderedDict[str, Mismatch | Agreement] = OrderedDict()
        self._has_allocated = asyncio.Event()
        self._refused: set[str] = set()
        self.n_written = 0
        self.n_dropped = 0
        self.n_failed = 0

    def tell(self, note: Note) -> None:
        """Have an Event written, unless it was lately or is not wanted."""
        if self._level == "off" or not (note.reason.is_warning or self._level == "all"):
            return
        now_s = self._tools.timer()
        if now_s - self._told.get(note, -AGAIN_S) < AGAIN_S:
            return
        if self._notes.full():
            self.n_dropped += 1
            return
        self._told[note] = now_s
        self._told.move_to_end(note)
        if len(self._told) > MAX_TOLD:
            self._told.popitem(last=False)
        self._notes.put_nowait(note)

    def annotate(self, found: Mismatch | Agreement) -> None:
        """Have the pod carry what it was really given, or nothing where that is its plan."""
        self._allocated[found.uid] = found
        self._has_allocated.set()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as writers:
            writers.create_task(self._write_events())
            writers.create_task(self._write_annotations())

    async def _write_events(self) -> None:
        while True:
            note = await self._notes.get()
            event = ObjectEvent(
                about=note.about,
                is_warning=note.reason.is_warning,
                reason=note.reason.value,
                message=note.message,
                at=self._tools.now(),
                component=COMPONENT,
                instance=self._tools.instance,
            )
            try:
                await self._tools.api.create_event(event)
            except KubeError as error:
                # Not tried again: the next time the same is to be told, it is.
                self._told.pop(note, None)
                self._fail(logkeys.EVENT_FAILED, error)
            else:
                self.n_written += 1
            await self._tools.sleep(PAUSE_S)

    async def _write_annotations(self) -> None:
        backoff = self._tools.backoff()
        while True:
            await self._has_allocated.wait()
            while self._allocated:
                uid, one = self._allocated.popitem(last=False)
                annotations = {names.ALLOCATED: one.text}
                try:
                    await self._tools.api.annotate_pod(one.namespace, one.name, uid, annotations)
                except NotFound:
                    continue
                except KubeError as error:
                    self._fail(logkeys.ANNOTATION_FAILED, error)
                    self._allocated.setdefault(uid, one)
                    await self._tools.sleep(backoff.next_s(retry_after_s=error.retry_after_s))
                else:
                    backoff.reset()
            self._has_allocated.clear()

    def _fail(self, event: str, error: KubeError) -> None:
        """Count, and log each kind of refusal once: a missing permission meets every Event."""
        self.n_failed += 1
        kind = f"{event} {error.status} {error.reason}"
        if kind not in self._refused:
            self._refused.add(kind)
            self._tools.log.warning(event, **{logkeys.DETAIL: str(error)})
