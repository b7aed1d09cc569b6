"""Writes the annotations of our own Node: its topology, and the report on its devices.

`publish` sets what the Node is to carry, and `run` writes it. A write of a Node rewrites the whole
object, goes to every watcher and requeues every pod that an extender ever rejected. So nothing is
written that is there already, changes that come close together are one write, and an idle node
makes no request at all.

    nothing known ──PATCH of nothing, whose answer shows the Node──▶ known
    known, and what is wanted differs ──PATCH of what differs──▶ known, from its answer

So no right to read Nodes is needed. The generation of the report is the publisher's own: one more
than the greatest it has seen or written, and only where something else in the report changes.

A Node that is not there yet is waited for, as are the rights to write it. The Node is not watched:
what others do to our annotations stays until `refetch` (call it where the Node may be a new one,
after a kubelet restart), or until there is something new to write. The admission policies in
deploy/ prevent such writes.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from kube.errors import Conflict, KubeError, NotFound
from kube.watch import Backoff
from topology.annotations import DevicesReport, decode_devices, encode_devices
from topology.errors import CodecError
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = [
    "AnnotationApi",
    "NodeWritten",
    "Publisher",
    "WriteEvent",
    "WriteFailure",
    "WriteFailureReason",
    "WriteTiming",
]


_MAX_GENERATION = 2**63 - 1
"""The greatest that a reader takes (topology.model.fields)."""


class AnnotationApi(Protocol):
    """What is needed of `kube.client.server`."""

    async def annotate_node(
        self, name: str, annotations: Mapping[str, str | None]
    ) -> Mapping[str, str]:
        """Set annotations (None: remove), return all that the Node has then. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class WriteTiming:
    """How fast is written, in seconds."""

    coalesce_s: float = 1.0
    """From a change until it is written: what comes meanwhile is written with it. Events of a
    machine come in bursts, and no decision waits for these within the second."""
    urgent_s: float = 0.1
    """The same for what the next plan depends on: a device whose health changes, one that a
    container holds without a plan, and the first write. A GPU that falls off the bus raises
    several events."""
    first_delay_s: float = 1.0
    cap_delay_s: float = 60.0
    """Delays between tries where a later one may work: with thousands of nodes and an API server
    that comes back, a minute spreads them out."""
    refused_first_s: float = 10.0
    refused_cap_s: float = 300.0
    """The same where a person has to change something first (rights, a policy, a quota). The first
    is short: at installation rights may come a moment after the pods."""
    look_s: float = 2.0
    """For the first fetch, before devices are offered: the Node has the faults of before."""
    max_retry_after_s: float = 300.0
    """Longest Retry-After that is respected."""


class WriteFailureReason(Enum):
    """Why a request failed, by what has to happen."""

    ABSENT = "absent"
    """The Node is not there: the kubelet creates it when it registers."""
    REFUSED = "refused"
    """A person has to change something: rights, a policy, a size."""
    TRANSIENT = "transient"
    """A retry may succeed."""


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A request that failed; `delay_s` until the next."""

    reason: WriteFailureReason
    error: KubeError
    delay_s: float


@dataclass(frozen=True, slots=True)
class NodeWritten:
    """A write that was accepted: of which annotations, and the report's generation (0: none)."""

    keys: tuple[str, ...]
    generation: int


WriteEvent = NodeWritten | WriteFailure


@dataclass(frozen=True, slots=True)
class _Wanted:
    topology: str | None
    devices: DevicesReport | None
    keeps_holds: bool = False

    def report(self, there: DevicesReport | None) -> DevicesReport | None:
        """The report, as it is to be beside the one that is there."""
        if self.devices is None or there is None or not self.keeps_holds:
            return self.devices
        return replace(self.devices, holds=there.holds, missing=there.missing)


_PACE = WriteTiming()


class Publisher:
    """The annotations of our Node, whose name is `node`. `run` until cancelled.

    `emit` reports what happens, for logs and metrics; `jitter` gives numbers in [0, 1). `on_found`
    gets the report that the Node carries when it is first seen, if it has one.
    """

    def __init__(  # noqa: PLR0913 - the Node, and what tests replace
        self,
        api: AnnotationApi,
        node: str,
        *,
        emit: Callable[[WriteEvent], None],
        on_found: Callable[[DevicesReport], None] = lambda _: None,
        pace: WriteTiming = _PACE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._node = node
        self._emit = emit
        self._on_found = on_found
        self._sleep = sleep
        self._pace = pace
        self._backoff = Backoff(first_s=pace.first_delay_s, cap_s=pace.cap_delay_s, jitter=jitter)
        self._refusals = Backoff(
            first_s=pace.refused_first_s, cap_s=pace.refused_cap_s, jitter=jitter
        )
        self._wanted: _Wanted | None = None
        self._shown: Mapping[str, str] | None = None
        self.was_found = False
        """Whether the Node was seen."""
        self._generation = 0
        self._changed = asyncio.Event()
        self._is_urgent = asyncio.Event()

    @property
    def is_published(self) -> bool:
        """Whether the Node carries what was last wanted, as far as is known."""
        return self._due() == {}

    def publish(
        self, topology: str | None, devices: DevicesReport | None, *, keeps_holds: bool = False
    ) -> None:
        """Write these to the Node, soon; None: remove the annotation.

        The report's own generation does not matter; with `keeps_holds` nor does what it says of
        containers (`holds`, `missing`) where the Node carries a report already: that stays. Raises
        `CodecError` for a report that no annotation could hold.
        """
        if devices is not None:
            encode_devices(replace(devices, generation=_MAX_GENERATION))
        plain = None if devices is None else replace(devices, generation=0)
        wanted = _Wanted(topology, plain, keeps_holds)
        if wanted == self._wanted:
            return
        if self._wanted is None or _cannot_wait(wanted, self._wanted):
            self._is_urgent.set()
        self._wanted = wanted
        self._changed.set()

    async def look(self) -> None:
        """Fetch what the Node carries, within `look_s`; where that fails, `run` tries again."""
        try:
            async with asyncio.timeout(self._pace.look_s):
                await self._annotate({})
        except KubeError as error:
            self._emit(WriteFailure(_failure_reason(error), error, 0.0))
        except TimeoutError:
            return

    def refetch(self) -> None:
        """Fetch what the Node carries, and write what differs."""
        self._shown = None
        if self._wanted is not None:
            self._changed.set()

    async def run(self) -> None:
        """Write what differs, whenever it does, until cancelled."""
        while True:
            await self._changed.wait()
            await self._gather()
            self._changed.clear()
            self._is_urgent.clear()
            while not await self._settle():
                pass

    async def _gather(self) -> None:
        """Let changes come together; an urgent one does not wait for the others."""
        calm = asyncio.ensure_future(self._sleep(self._pace.coalesce_s))
        urgent = asyncio.ensure_future(self._is_urgent.wait())
        try:
            await asyncio.wait((calm, urgent), return_when=asyncio.FIRST_COMPLETED)
            if not calm.done():
                await self._sleep(self._pace.urgent_s)
        finally:
            calm.cancel()
            urgent.cancel()

    async def _settle(self) -> bool:
        """One try to make the Node carry what is wanted; False: another is needed."""
        try:
            if self._shown is None:
                await self._annotate({})
            due = self._due()
            if due:
                await self._annotate(due)
                self._emit(NodeWritten(tuple(due), self._generation))
        except KubeError as error:
            # A write without an answer may have been done.
            self._shown = None
            await self._fail(error)
            return False
        self._backoff.reset()
        self._refusals.reset()
        return True

    async def _annotate(self, due: Mapping[str, str | None]) -> None:
        self._shown = await self._api.annotate_node(self._node, due)
        report = _report(self._shown)
        if report is not None:
            self._generation = max(self._generation, report.generation)
        if report is not None and not self.was_found:
            self._on_found(report)
        self.was_found = True

    def _due(self) -> dict[str, str | None] | None:
        """What has to be written; None where that is unknown."""
        if self._wanted is None or self._shown is None:
            return None
        due: dict[str, str | None] = {}
        if self._shown.get(names.TOPOLOGY) != self._wanted.topology:
            due[names.TOPOLOGY] = self._wanted.topology
        there = _report(self._shown)
        devices = self._wanted.report(there)
        if devices is None:
            if names.DEVICES in self._shown:
                due[names.DEVICES] = None
        elif there is None or replace(there, generation=0) != devices:
            due[names.DEVICES] = encode_devices(
                replace(devices, generation=min(self._generation + 1, _MAX_GENERATION))
            )
        return due

    async def _fail(self, error: KubeError) -> None:
        reason = _failure_reason(error)
        if reason is WriteFailureReason.REFUSED:
            delay_s = self._refusals.next_s()
        else:
            after_s = error.retry_after_s
            if after_s is not None:
                after_s = min(after_s, self._pace.max_retry_after_s)
            delay_s = self._backoff.next_s(retry_after_s=after_s)
        self._emit(WriteFailure(reason, error, delay_s))
        await self._sleep(delay_s)


def _failure_reason(error: KubeError) -> WriteFailureReason:
    if isinstance(error, NotFound):
        return WriteFailureReason.ABSENT
    if error.is_transient or isinstance(error, Conflict):
        return WriteFailureReason.TRANSIENT
    return WriteFailureReason.REFUSED


def _report(annotations: Mapping[str, str]) -> DevicesReport | None:
    """The report that is there; None also for an invalid one, which is replaced."""
    text = annotations.get(names.DEVICES)
    if text is None:
        return None
    try:
        return decode_devices(text)
    except CodecError:
        return None


def _cannot_wait(wanted: _Wanted, before: _Wanted) -> bool:
    """Whether a plan made now would be wrong. Devices that are free again can wait."""
    has_new_holds = not _held(wanted) <= _held(before)
    return has_new_holds or _unhealthy(wanted) != _unhealthy(before)


def _unhealthy(wanted: _Wanted) -> frozenset[str]:
    devices = wanted.devices
    return frozenset() if devices is None else frozenset(one.id for one in devices.unhealthy)


def _held(wanted: _Wanted) -> frozenset[str]:
    holds = () if wanted.devices is None else wanted.devices.holds
    return frozenset(device_id for hold in holds for device_id in hold.ids)
