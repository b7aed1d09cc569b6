"""One collection of the API server, kept up to date.

What it answers: all objects of a collection, then every change, in order and without a gap. The
method is client-go's (tools/cache/reflector.go): list in pages at one consistent resourceVersion,
hand the whole list over, then watch from that version on; keep the version over reconnects; start
again with a list when the server no longer has it (410).

    list ──complete──▶ watch ──ended by the server──▶ watch from the last version
      ▲                  │ 410, malformed, versions going back, three refusals in a row
      └──────────────────┘ with a delay, unless something was heard since the last list

Something is heard at least every half minute, even where nothing changes: a watch is asked to last
about 30 s, and the server sends a bookmark shortly before it ends one, or just ends it. So
`observed_at_s` tells how old the picture may be, and a connection whose other end is gone without a
word is noticed.

What it must never do: hand over an incomplete list, drop a change in silence, or keep the event
loop from others for more than some milliseconds.
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
"""Watches refused in a row before a list is tried: whatever is wrong with the version, it helps."""
_SHORT_WATCH_S = 1.0
"""client-go's bound (reflector.go, VeryShortWatchError)."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """What is listed and watched, and how one object is read.

    `read` raises `Unreadable`. `is_metadata`: ask for `PartialObjectMetadata` instead of whole
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
    """A try that failed; `delay_s` until the next. `will_list`: the next begins with a list."""

    source: str
    error: KubeError
    delay_s: float
    will_list: bool


class Sink(Protocol[T_contra]):
    """Who is told. Called on the event loop, in the order of what happened."""

    async def replace(self, objects: Sequence[T_contra]) -> None:
        """Take the whole collection: what is not in it is gone. May let others run in between."""
        ...

    def seen(self, one: T_contra) -> None:
        """Take an object that is new or has changed."""
        ...

    def gone(self, key: ObjectKey) -> None:
        """Take note that an object left the collection."""
        ...

    def unread(self, key: ObjectKey, reason: str) -> None:
        """Take note of an object that is there but cannot be read; `key` may be empty."""
        ...

    def failed(self, fault: Fault) -> None:
        """Take note of a try that failed; it will be tried again."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things may take, in seconds."""

    watch_s: float = 30.0
    """What a watch is asked to last; each draws from 0.9 to 1.1 of it."""
    margin_s: float = 8.0
    """Silence beyond the watch's own end after which the other end counts as gone."""
    list_page_s: float = 30.0
    """For one page of a list."""
    first_delay_s: float = 0.1
    cap_delay_s: float = 5.0
    """Delays between tries. The cap decides how fresh the picture is after the API server comes
    back; four watches that try every few seconds are no load."""
    max_retry_after_s: float = 60.0
    """Of what a server asks us to wait, no more than this is believed."""
    slice_s: float = 0.003
    """Work after which others are let run."""


_TIMING = Timing()


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance; `draw` gives numbers in [0, 1)."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = random.random


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

    `observed_at_s` is the time (of `clock.monotonic`) at which the picture was last known to be
    whole: the start of a list that was completed, an event, a bookmark, a watch that the server
    ended in order. None before the first list is complete.
    """

    def __init__(
        self,
        door: Requester,
        source: Source[T],
        sink: Sink[T],
        *,
        timing: Timing = _TIMING,
        clock: Clock = _CLOCK,
    ) -> None:
        self._door = door
        self._source = source
        self._sink = sink
        self._timing = timing
        self._clock = clock
        self._backoff = Backoff(
            first_s=timing.first_delay_s, cap_s=timing.cap_delay_s, draw=clock.draw
        )
        self._version = ""
        self._must_list = True
        self._must_check = False
        self._asked = asyncio.Event()
        self._askers: list[asyncio.Future[None]] = []
        self._watched_s = 0.0
        self._slice_began_s = 0.0
        self.is_synced = False
        self.observed_at_s: float | None = None
        self.counts = Counts()

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.name

    @property
    def resource_version(self) -> str:
        """Up to where the sink was told; empty before the first list is complete."""
        return self._version

    async def relist(self) -> None:
        """Have a list made that begins after this call, and return when the sink has it.

        The watch in progress is left for it. A list that fails is tried again, as ever.
        """
        done = asyncio.get_running_loop().create_future()
        self._askers.append(done)
        self._asked.set()
        await done

    async def run(self) -> None:
        """List and watch until cancelled. What `sink` raises ends it."""
        while True:
            is_listing = self._must_list or self._asked.is_set()
            self._watched_s = 0.0
            try:
                await (self._list() if is_listing else self._watch_unless_asked())
            except KubeError as error:
                await self._after(error, is_listing=is_listing)

    async def _after(self, error: KubeError, *, is_listing: bool) -> None:
        """Decide how to go on after a failure, and wait."""
        if self._watched_s >= self._timing.cap_delay_s:
            # The server was well for longer than we would now wait.
            self._backoff.reset()
        n_before = self._backoff.n_failures
        self._must_list = (
            is_listing
            or isinstance(error, Gone | Malformed)
            or (error.status != 0 and n_before >= _REFUSALS_BEFORE_LIST - 1)
        )
        asked_s = error.retry_after_s
        if asked_s is not None:
            asked_s = min(asked_s, self._timing.max_retry_after_s)
        elif isinstance(error, Gone) and n_before == 0:
            asked_s = 0.0
        delay_s = self._backoff.next_s(asked_s=asked_s)
        self._must_check = True
        self.counts.n_faults += 1
        self._sink.failed(Fault(self.name, error, delay_s, will_list=self._must_list))
        await self._clock.sleep(delay_s)

    async def _list(self) -> None:
        """Read all pages, and only then hand the objects over."""
        began_s = self._clock.monotonic()
        askers, self._askers = self._askers, []
        self._asked.clear()
        try:
            version = await self._read_pages()
        except BaseException:
            self._askers += askers
            raise
        self._version = version
        self._must_list = False
        self._must_check = False
        self.is_synced = True
        # The server's answer is at least as new as the request for the first page.
        self.observed_at_s = began_s
        self.counts.n_lists += 1
        for asker in askers:
            if not asker.done():
                asker.set_result(None)

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
                await self._let_others_run()
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
        return Page(await self._door.request(request))

    async def _watch_unless_asked(self) -> None:
        watching = asyncio.ensure_future(self._watch())
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((watching, asked), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                await watching
        finally:
            watching.cancel()
            asked.cancel()
            await asyncio.gather(watching, asked, return_exceptions=True)

    async def _check_version(self) -> None:
        """Make sure that the server's store is not behind us. Raises `Malformed`.

        After a store was restored from a backup, a watch from the version that we knew would be
        accepted and keep silent until the store has caught up: every change until then would be
        lost. Whoever restores a store restarts its servers, so that we meet this after a failure.
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
        length_s = round(timing.watch_s * (0.9 + 0.2 * self._clock.draw()))
        query = {
            **self._selection(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(length_s),
            "resourceVersion": self._version,
        }
        began_s = self._clock.monotonic()
        n_heard = 0
        self.counts.n_watches += 1
        stream = self._door.lines(
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
                        n_heard += 1
                        await self._let_others_run()
        finally:
            self._watched_s = self._clock.monotonic() - began_s
        if n_heard == 0 and self._watched_s < _SHORT_WATCH_S:
            msg = f"watch ended after {self._watched_s:.3f} s without a word"
            raise Unanswered(0, "ShortWatch", msg)
        # The server ends a watch by itself only when it has nothing more to say. Where nothing has
        # changed since the watch began, no bookmark comes either.
        self._heard()

    def _take(self, event: WatchEvent) -> None:
        """Tell the sink of one event. Raises `Malformed` for one that cannot follow the last."""
        self._must_follow(event.resource_version)
        if event.kind == "BOOKMARK":
            self.counts.n_bookmarks += 1
        else:
            self.counts.n_events += 1
            self._tell(event)
        self._version = event.resource_version
        self._heard()

    def _heard(self) -> None:
        self.observed_at_s = self._clock.monotonic()
        self._backoff.reset()

    def _must_follow(self, version: str) -> None:
        """Refuse a version that is certainly older than ours: they are numbers of one etcd."""
        mine = self._version
        if version.isdecimal() and mine.isdecimal() and int(version) < int(mine):
            raise Malformed(0, "WentBack", f"version {version} after {mine}")

    def _tell(self, event: WatchEvent) -> None:
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

    async def _let_others_run(self) -> None:
        if self._clock.monotonic() - self._slice_began_s >= self._timing.slice_s:
            await asyncio.sleep(0)
            self._slice_began_s = self._clock.monotonic()
