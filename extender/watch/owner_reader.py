"""Reads the objects that say the sizes of groups, beside the requests, as the groups want them.

One request for an owner, few at a time and no more than `1 / PACE_S` a second for each reader, so
that a thousand Jobs that come at once are no burst at the API server. While that is away a read is
retried, up to `MAX_FAULTS` times; a refusal is final, but that an object is not there yet may be a
matter of order: it is looked for `MAX_ABSENT` times. What is to be retried keeps no reader: else a
few hundred pods that name no object would hold up all other groups. Where a right is missing, other
objects of the kind in that namespace are not tried for `FORBIDDEN_S`. What cannot be read has no
group: its pods are placed as any others, and `on_alone` is called with what keeps them from being a
group.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from extender.engine.events import OwnerRead
from kube.errors import KubeError, Malformed
from kube.objects import Gang, ObjectKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from extender.engine.events import StateEvent
    from extender.protocol import GroupOwner
    from extender.watch.watch_log import WatchLog
    from kube.watch import Backoff

__all__ = ["RESULTS", "GangReader", "OwnerReader"]

N_READERS = 4
PACE_S = 0.05
"""After each read of a reader: 80 a second together, a thousand Jobs in 13 s."""
MAX_FAULTS = 20
"""Some six minutes, with delays up to half a minute: longer than an API server takes to restart."""
MAX_ABSENT = 6
"""Some six seconds: a pod may come before the PodGroup that it names."""
MAX_BROKEN = 5
"""Tries after which an internal error (500) is the object's own: a broken conversion webhook."""
FORBIDDEN_S = 60.0
RESULTS = ("sized", "no_gang", "one_by_one", "absent", "forbidden", "failed")
"""What comes of reading an owner, as `OwnerReader.results` counts it."""
_RESOURCES = {
    "indexed-job": ("Job", "jobs.batch"),
    "jobset": ("JobSet", "jobsets.jobset.x-k8s.io"),
    "coscheduling": ("PodGroup", "podgroups.scheduling.x-k8s.io"),
}


class GangReader(Protocol):
    """The requests of `kube.client.server` that are used. Each raises `KubeError`."""

    async def get_job_gang(self, namespace: str, name: str) -> Gang | None:
        """Read what a Job says of its pods; None where it is not there."""
        ...

    async def get_job_set_gang(
        self, namespace: str, name: str, resources: Collection[str]
    ) -> Gang | None:
        """Read what a JobSet says of its pods with these resources; None where it is not there."""
        ...

    async def get_pod_group_gang(self, namespace: str, name: str) -> Gang | None:
        """Read what a PodGroup says of its pods; None where it is not there."""
        ...


@dataclass(frozen=True, slots=True)
class _Finding:
    """What came of reading an owner. `why` says what is to be reported, empty for nothing."""

    result: str
    size: int | None = None
    why: str = ""


@dataclass(eq=False)
class _Reading:
    """An owner that is being read, and what came of the tries so far."""

    owner: GroupOwner
    backoff: Backoff
    tries: Counter[str] = field(default_factory=Counter[str])


@dataclass(eq=False)
class OwnerReader:
    """Takes owners from `take_wanted` with each `look`, and reads them in `run`.

    `handle` is the gateway's, `changed` is called after each event. `on_alone` gets an owner whose
    pods are placed without a group though they seem to be one, and a sentence.
    """

    take_wanted: Callable[[float], Sequence[GroupOwner]]
    handle: Callable[[StateEvent], None]
    api: GangReader
    resources: Sequence[str]
    changed: Callable[[], None]
    on_alone: Callable[[GroupOwner, str], None]
    clock: Callable[[], float]
    log: WatchLog
    backoff: Callable[[], Backoff]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    results: dict[str, int] = field(init=False, default_factory=lambda: dict.fromkeys(RESULTS, 0))

    def __post_init__(self) -> None:
        self._queue: asyncio.Queue[_Reading] = asyncio.Queue()
        self._forbidden: dict[tuple[str, str], float] = {}

    def look(self) -> None:
        """Queue what is wanted now; cheap where that is nothing."""
        for owner in self.take_wanted(self.clock()):
            self._queue.put_nowait(_Reading(owner, self.backoff()))

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(N_READERS):
                tasks.create_task(self._read_all(tasks))

    async def _read_all(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            reading = await self._queue.get()
            found = await self._read(reading)
            if isinstance(found, _Finding):
                self._finish(reading.owner, found)
            else:
                tasks.create_task(self._read_later(reading, found))
                await asyncio.sleep(0)  # its delay begins now
            await self.sleep(PACE_S)

    async def _read_later(self, reading: _Reading, delay_s: float) -> None:
        await self.sleep(delay_s)
        self._queue.put_nowait(reading)

    def _finish(self, owner: GroupOwner, found: _Finding) -> None:
        self.results[found.result] += 1
        if found.why:
            self.on_alone(owner, _alone(owner, found.why))
        self.handle(OwnerRead(owner, found.size, self.clock()))
        self.changed()

    async def _read(self, reading: _Reading) -> _Finding | float:
        """Try once: what the owner's pods are, or the seconds after which it is tried again."""
        owner, tries = reading.owner, reading.tries
        if self._is_forbidden(owner):
            return _forbidden(owner)
        try:
            gang = await self._get(owner)
        except KubeError as error:
            finding = self._judge(owner, error, tries)
            if finding is not None:
                return finding
            return reading.backoff.next_s(retry_after_s=error.retry_after_s)
        if gang is not None:
            return _found(owner, gang)
        tries["absent"] += 1
        if tries["absent"] >= MAX_ABSENT:
            return _Finding("absent", why="it does not exist")
        return reading.backoff.next_s()

    async def _get(self, owner: GroupOwner) -> Gang | None:
        match owner.kind:
            case "indexed-job":
                return await self.api.get_job_gang(owner.namespace, owner.name)
            case "jobset":
                api, names = self.api, (owner.namespace, owner.name)
                return await api.get_job_set_gang(*names, self.resources)
            case _:
                return await self.api.get_pod_group_gang(owner.namespace, owner.name)

    def _judge(self, owner: GroupOwner, error: KubeError, tries: Counter[str]) -> _Finding | None:
        """What a failed read means; None: it is to be tried again."""
        if error.status == HTTPStatus.FORBIDDEN:
            self._forbidden[owner.kind, owner.namespace] = self.clock() + FORBIDDEN_S
            self._log(owner, str(error))
            return _forbidden(owner)
        tries["faults"] += 1
        tries["broken"] += error.status == HTTPStatus.INTERNAL_SERVER_ERROR
        is_final = isinstance(error, Malformed) or not error.is_transient
        if is_final or tries["faults"] >= MAX_FAULTS or tries["broken"] >= MAX_BROKEN:
            self._log(owner, str(error))
            return _Finding("failed", why=f"it cannot be read ({error})")
        return None

    def _is_forbidden(self, owner: GroupOwner) -> bool:
        """Whether such an owner was refused lately, so that this one is not even tried."""
        key = owner.kind, owner.namespace
        if self._forbidden.get(key, 0.0) > self.clock():
            return True
        self._forbidden.pop(key, None)
        return False

    def _log(self, owner: GroupOwner, why: str) -> None:
        self.log.unread(owner.kind, ObjectKey(owner.namespace, owner.name, owner.uid), why)


def _found(owner: GroupOwner, gang: Gang) -> _Finding:
    if owner.uid and gang.uid != owner.uid:
        return _Finding("absent", why="another has its name, and its own is gone")
    if gang.one_by_one:
        why = f"it creates its pods one after the other, so that none may wait: {gang.one_by_one}"
        return _Finding("one_by_one", why=why)
    return _Finding("no_gang" if gang.size is None else "sized", gang.size)


def _forbidden(owner: GroupOwner) -> _Finding:
    """The log has the API server's own words."""
    right = _RESOURCES[owner.kind][1]
    why = (
        f"the extender may not get {right} in namespace {owner.namespace}: apply "
        f"deploy/group-kinds/{owner.kind}.yaml, or with the chart set extender.settings.group_kinds"
    )
    return _Finding("forbidden", why=why)


def _alone(owner: GroupOwner, why: str) -> str:
    kind = _RESOURCES[owner.kind][0]
    return f"the pods of {kind} {owner.namespace}/{owner.name} are placed without a group: {why}"
