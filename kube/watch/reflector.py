"""One collection of the API server, kept up to date.

Delivers all objects of a collection, then every change, in order and without a gap. The method is
client-go's (tools/cache/reflector.go): list in pages at one consistent resourceVersion, deliver the
whole list, then watch from that version on; keep the version over reconnects; relist when the
server no longer has it (410).

    list ──complete──▶ watch ──ended by the server──▶ watch from the last version
      ▲                  │ 410, malformed, versions going back, three refusals in a row
      └──────────────────┘ with a delay, unless something was received since the last list

The server sends something at least every half minute, even where nothing changes: a watch requests
a duration of about 30 s, and the server sends a bookmark shortly before it ends one, or just ends
it. So `observed_at_s` bounds the age of the collection, and a connection whose other end is gone
without closing is noticed.

It never delivers an incomplete list, drops a change silently, or blocks the event loop for more
than some milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kube.client import JSON, METADATA, METADATA_LIST, Page, Request, WatchEvent, read_event
from kube.errors import Gone, KubeError, Malformed, Unanswered, Unreadable
from kube.objects import ObjectKey, read_key
from kube.watch.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kube.client import Requester

__all__ = ["Clock", "Counts", "Fault", "Reflector", "Sink", "Source", "Timing"]

_REFUSALS_BEFORE_LIST = 3
"""Watches refused in a row before a relist, which repairs whatever is wrong with the version."""
_SHORT_WATCH_S = 1.0
"""client-go's bound (reflector.go, VeryShortWatchError)."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """What is listed and watched, and how one object is read.

    `read` raises `Unreadable`. `is_metadata`: request `PartialObjectMetadata` instead of whole
    objects. `page_size`: objects per page of a list.
    """

    name: str
    path: str
    read: Callable[[Mapping[str, object]], T]
    field_selector: str = ""
    is_metadata: bool = False
    page_size: int = 500


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt; `delay_s` until the next. `will_list`: the next begins with a list."""

    source: str
    error: KubeError
    delay_s: float
    will_list: bool


class Sink(Protocol[T_contra]):
    """The receiver of a collection. Called on the event loop, in the order of the events."""

    async def replace(self, objects: Sequence[T_contra]) -> None:
        """Take the whole collection: what is not in it is gone. May yield to the event loop."""
        ...

    def seen(self, one: T_contra) -> None:
        """Take an object that is new or has changed."""
        ...

    def gone(self, key: ObjectKey) -> None:
        """Handle an object that left the collection."""
        ...

    def unread(self, key: ObjectKey, reason: str) -> None:
        """Handle an object that exists but cannot be read; `key` may be empty."""
        ...

    def failed(self, fault: Fault) -> None:
        """Handle a failed attempt; it will be retried."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things may take, in seconds."""

    watch_s: float = 30.0
    """Requested duration of a watch; each draws from 0.9 to 1.1 of it."""
    margin_s: float = 8.0
    """Time without data beyond the watch's own end after which the connection counts as lost."""
    list_page_s: float = 30.0
    """For one page of a list."""
    first_delay_s: float = 0.1
    cap_delay_s: float = 5.0
    """Delays between attempts. The cap decides how soon the collection is fresh after the API
    server comes back; four watches that retry every few seconds are no load."""
    max_retry_after_s: float = 60.0
    """Upper bound on the delay that a server may request."""
    slice_s: float = 0.003
    """Work after which the reflector yields to the event loop."""


_TIMING = Timing()


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance; `jitter` gives numbers in [0, 1)."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


_CLOCK = Clock()


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    n_lists: int = 0
    n_watches: int = 0
    n_events: int = 0
    n_bookmarks: int = 0
    n_unread: int = 0
    n_faults: int = 0


class Reflector(Generic[T]):
    """Keeps `sink` at what the API server has of `source`. `run` until cancelled.

    `observed_at_s` is the time (of `clock.monotonic`) at which the collection was last known to be
    complete: the start of a list that was completed, an event, a bookmark, a watch that the server
    ended in order. None before the first list is complete. `fault` is the last failure, None once
    something was heard again.
    """

    def __init__(
        self,
        requester: Requester,
        source: Source[T],
        sink: Sink[T],
        *,
        timing: Timing = _TIMING,
        clock: Clock = _CLOCK,
    ) -> None:
        self._requester = requester
        self._source = source
        self._sink = sink
        self._timing = timing
        self._clock = clock
        self._backoff = Backoff(
            first_s=timing.first_delay_s, cap_s=timing.cap_delay_s, jitter=clock.jitter
        )
        self._version = ""
        self._must_list = True
        self._must_check = False
        self._watched_s = 0.0
        self._slice_start_s = 0.0
        self.is_synced = False
        self.observed_at_s: float | None = None
        self.fault: KubeError | None = None
        self.counts = Counts()

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.name

    @property
    def resource_version(self) -> str:
        """The version that the sink has; empty before the first list is complete."""
        return self._version

    async def run(self) -> None:
        """List and watch until cancelled. What `sink` raises ends it."""
        while True:
            is_listing = self._must_list
            self._watched_s = 0.0
            try:
                await (self._list() if is_listing else self._watch())
            except KubeError as error:
                await self._after(error, is_listing=is_listing)

    async def _after(self, error: KubeError, *, is_listing: bool) -> None:
        """Decide whether to list or watch after a failure, and wait."""
        if self._watched_s >= self._timing.cap_delay_s:
            # The server was healthy for longer than we would now wait.
            self._backoff.reset()
        n_before = self._backoff.n_failures
        self._must_list = (
            is_listing
            or isinstance(error, Gone | Malformed)
            or (error.status != 0 and n_before >= _REFUSALS_BEFORE_LIST - 1)
        )
        retry_after_s = error.retry_after_s
        if retry_after_s is not None:
            retry_after_s = min(retry_after_s, self._timing.max_retry_after_s)
        elif isinstance(error, Gone) and n_before == 0:
            retry_after_s = 0.0
        delay_s = self._backoff.next_s(retry_after_s=retry_after_s)
        self._must_check = True
        self.fault = error
        self.counts.n_faults += 1
        self._sink.failed(Fault(self.name, error, delay_s, will_list=self._must_list))
        await self._clock.sleep(delay_s)

    async def _list(self) -> None:
        """Read all pages, and only then deliver the objects."""
        began_s = self._clock.monotonic()
        self._version = await self._read_pages()
        self._must_list = False
        self._must_check = False
        self.is_synced = True
        self.fault = None
        # The server's answer is at least as new as the request for the first page.
        self.observed_at_s = began_s
        self.counts.n_lists += 1

    async def _read_pages(self) -> str:
        objects: list[T] = []
        unread: list[tuple[ObjectKey, str]] = []
        query = {**self._selection(), "limit": str(self._source.page_size)}
        while True:
            page = await self._page(query)
            for content in page:
                try:
                    objects.append(self._source.read(content))
                except Unreadable as error:
                    unread.append((read_key(content), str(error)))
                await self._yield_to_loop()
            if not page.continue_token:
                break
            query = {**query, "continue": page.continue_token}
        await self._sink.replace(objects)
        for key, reason in unread:
            self.counts.n_unread += 1
            self._sink.unread(key, reason)
        return page.resource_version

    async def _page(self, query: Mapping[str, str]) -> Page:
        request = Request(
            "GET",
            self._source.path,
            self._timing.list_page_s,
            query=query,
            accept=METADATA_LIST if self._source.is_metadata else JSON,
        )
        return Page(await self._requester.request(request))

    async def _check_version(self) -> None:
        """Make sure that the server's store is not behind us. Raises `Malformed`.

        After a store was restored from a backup, a watch from the version that we knew would be
        accepted and send nothing until the store has caught up: every change until then would be
        lost. A restore restarts the servers, so that checking after a failure is enough.
        """
        page = await self._page({**self._selection(), "limit": "1"})
        for _ in page:
            pass
        self._must_follow(page.resource_version)
        self._must_check = False

    async def _watch(self) -> None:
        if self._must_check:
            await self._check_version()
        timing = self._timing
        length_s = round(timing.watch_s * (0.9 + 0.2 * self._clock.jitter()))
        query = {
            **self._selection(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(length_s),
            "resourceVersion": self._version,
        }
        began_s = self._clock.monotonic()
        n_received = 0
        self.counts.n_watches += 1
        stream = self._requester.lines(
            Request(
                "GET",
                self._source.path,
                length_s + timing.margin_s,
                query=query,
                accept=METADATA if self._source.is_metadata else JSON,
            )
        )
        try:
            async with contextlib.aclosing(stream):
                async for lines in stream:
                    for line in lines:
                        self._take(read_event(line))
                        n_received += 1
                        await self._yield_to_loop()
        finally:
            self._watched_s = self._clock.monotonic() - began_s
        if n_received == 0 and self._watched_s < _SHORT_WATCH_S:
            msg = f"watch ended after {self._watched_s:.3f} s without an event"
            raise Unanswered(0, "ShortWatch", msg)
        # The server ends a watch by itself only when it has sent every event. Where nothing has
        # changed since the watch began, no bookmark comes either.
        self._mark_fresh()

    def _take(self, event: WatchEvent) -> None:
        """Deliver one event. Raises `Malformed` for one that cannot follow the last."""
        self._must_follow(event.resource_version)
        if event.kind == "BOOKMARK":
            self.counts.n_bookmarks += 1
        else:
            self.counts.n_events += 1
            self._deliver(event)
        self._version = event.resource_version
        self._mark_fresh()

    def _mark_fresh(self) -> None:
        self.observed_at_s = self._clock.monotonic()
        self.fault = None
        self._backoff.reset()

    def _must_follow(self, version: str) -> None:
        """Refuse a version that is certainly older than ours: they are numbers of one etcd."""
        mine = self._version
        if version.isdecimal() and mine.isdecimal() and int(version) < int(mine):
            raise Malformed(0, "WentBack", f"version {version} after {mine}")

    def _deliver(self, event: WatchEvent) -> None:
        if event.kind == "DELETED":
            self._sink.gone(read_key(event.content))
            return
        try:
            one = self._source.read(event.content)
        except Unreadable as error:
            self.counts.n_unread += 1
            self._sink.unread(read_key(event.content), str(error))
        else:
            self._sink.seen(one)

    def _selection(self) -> dict[str, str]:
        selector = self._source.field_selector
        return {"fieldSelector": selector} if selector else {}

    async def _yield_to_loop(self) -> None:
        if self._clock.monotonic() - self._slice_start_s >= self._timing.slice_s:
            await asyncio.sleep(0)
            self._slice_start_s = self._clock.monotonic()
