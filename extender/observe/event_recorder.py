"""Writes reports for users: Events, and the annotation of what was really allocated.

It writes in the background and blocks no caller. The same sentence about the same object is written
once in `REPEAT_AFTER_S`, also where each of several schedulers has an extender: its Event has the
same name for all. The rate of Events is limited, and those that do not fit into the queue are
dropped and counted. Annotations are not dropped: the latest of each pod is retried until it is
written or the pod is gone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from extender import logkeys
from kube.client import ObjectEvent
from kube.errors import Conflict, KubeError, NotFound
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from extender.observe.events import Note
    from extender.state import Agreement, Mismatch
    from kube.log import Logger
    from kube.watch import Backoff

__all__ = ["Level", "Reporter"]

Level: TypeAlias = Literal["off", "warnings", "all"]
"""Which Events are written; Normal ones only with `all`."""

MAX_QUEUED = 1_000
"""Length of the queue: at `PAUSE_S` each, a minute's worth."""
MAX_REMEMBERED = 20_000
"""Notes remembered for deduplication."""
REPEAT_AFTER_S = 3_000.0
"""Time before the same note is written again. Events live an hour (kube-apiserver --event-ttl): as
long as a note is true, one Event shows it."""
PAUSE_S = 0.05
"""Between two Events: 20 a second; kube-scheduler's own client is held to 50 requests a second
(componentconfig v1 defaults, ClientConnection.QPS)."""
COMPONENT = "coterie-extender"


class ReportApi(Protocol):
    """The requests of `kube.client.server` that are used."""

    async def create_event(self, event: ObjectEvent) -> None:
        """Write an Event. Raises `KubeError`."""
        ...

    async def annotate_pod(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> object:
        """Set annotations. Raises `KubeError`."""
        ...


@dataclass(eq=False)
class Reporter:
    """Queues reports by `record` and `annotate`, writes them in `run`.

    `instance` names this process, `now` is wall-clock time.
    """

    api: ReportApi
    instance: str
    now: Callable[[], datetime]
    timer: Callable[[], float]
    log: Logger
    backoff: Callable[[], Backoff]
    level: Level
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._notes: asyncio.Queue[Note] = asyncio.Queue(MAX_QUEUED)
        self._reported: OrderedDict[Note, float] = OrderedDict()
        self._allocated: OrderedDict[str, Mismatch | Agreement] = OrderedDict()
        self._has_allocated = asyncio.Event()
        self._refused: set[str] = set()
        self.n_written = 0
        self.n_dropped = 0
        self.n_failed = 0

    def record(self, note: Note) -> None:
        """Queue an Event, unless the same was written lately or its level is off."""
        if self.level == "off" or (note.reason.is_frequent and self.level != "all"):
            return
        now_s = self.timer()
        if now_s - self._reported.get(note, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return
        if self._notes.full():
            self.n_dropped += 1
            return
        self._reported[note] = now_s
        self._reported.move_to_end(note)
        if len(self._reported) > MAX_REMEMBERED:
            self._reported.popitem(last=False)
        self._notes.put_nowait(note)

    def annotate(self, found: Mismatch | Agreement) -> None:
        """Queue the annotation of what the pod was given, or its removal where that is its plan."""
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
                at=self.now(),
                component=COMPONENT,
                instance=self.instance,
                key=self._key(note),
            )
            try:
                await self.api.create_event(event)
            except Conflict:
                pass  # another extender wrote it, or this one before it restarted
            except KubeError as error:
                # Not retried: the next note of the same kind is written.
                self._reported.pop(note, None)
                self._fail(logkeys.EVENT_FAILED, error)
            else:
                self.n_written += 1
            await self.sleep(PAUSE_S)

    def _key(self, note: Note) -> str:
        """The same for every extender that reports the same in this period."""
        period = self.now().timestamp() // REPEAT_AFTER_S
        said = "\n".join((note.about.uid, note.reason.value, note.message, str(period)))
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    async def _write_annotations(self) -> None:
        backoff = self.backoff()
        while True:
            await self._has_allocated.wait()
            while self._allocated:
                uid, one = self._allocated.popitem(last=False)
                annotations = {names.ALLOCATED: one.text}
                try:
                    await self.api.annotate_pod(one.namespace, one.name, uid, annotations)
                except NotFound:
                    continue
                except KubeError as error:
                    self._fail(logkeys.ANNOTATION_FAILED, error)
                    self._allocated.setdefault(uid, one)
                    await self.sleep(backoff.next_s(retry_after_s=error.retry_after_s))
                else:
                    backoff.reset()
            self._has_allocated.clear()

    def _fail(self, event: str, error: KubeError) -> None:
        """Count, and log each kind of refusal once: a missing permission meets every Event."""
        self.n_failed += 1
        kind = f"{event} {error.status} {error.reason}"
        if kind not in self._refused:
            self._refused.add(kind)
            self.log.warning(event, detail=str(error))
