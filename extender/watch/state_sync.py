"""Keeps the live state at what the API server reports.

Three reflectors (nodes, assigned pods, nominated pods) call their sinks, which hand events to the
gateway; those of pending pods (`extender.watch.pending_watch`) run beside, since groups alone wait
for them. After each batch of changes the state's effects are taken: probes are read here,
everything else goes to `on_effect`, and `on_change` may requeue pods.

Order is kept per object: a node whose machine type must be built first (a second of work, done in a
thread) is shown when it is built, as it is by then; the nodes beside it do not wait.

The state is complete when all three collections were listed once and the pods that had to be read
in full were read, however long that takes: until then it is not known on which nodes their GPUs
are, and these would be given away again. A later list may show such pods too, and the state is not
complete until those are read. Pods that cannot be read at all (`extender.watch.pod_reader`) hold
nothing up. The state is as fresh as the collection last heard of.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from extender import logkeys
from extender.engine.events import FreshnessSet, TimePassed
from extender.state import Probe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from extender.clocks import SteadyClock
    from extender.engine.events import StateEvent
    from extender.state import Effect
    from extender.watch.pod_reader import Prober
    from extender.watch.watch_log import WatchLog
    from kube.log import Logger
    from kube.objects import ObjectKey
    from kube.watch import Counts, Fault

__all__ = ["InformerSet", "PodSink", "Watch"]

T = TypeVar("T")

BATCH_S = 0.02
"""How long changes are gathered before they are acted on: settling the state costs the same for one
as for a hundred, and a request that comes meanwhile settles it for itself."""
TICK_S = 0.5
"""How often freshness is reported and assumptions expire."""


class Watch(Protocol):
    """What the feed needs of `kube.watch.reflector.Reflector`."""

    @property
    def name(self) -> str:
        """The collection's name."""
        ...

    @property
    def is_synced(self) -> bool:
        """Whether it was listed once."""
        ...

    @property
    def observed_at_s(self) -> float | None:
        """Up to when the server was heard, by the monotonic clock."""
        ...

    @property
    def counts(self) -> Counts:
        """What has happened since the start."""
        ...

    async def run(self) -> None:
        """List and watch until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class PodSink(Generic[T]):
    """A `kube.watch.reflector.Sink` of pods: hands an event of `events` to the gateway's `handle`.

    `events` are those of a whole list, of a pod that is new or has changed, and of one that left.
    `changed` is called after each event, `listed` after a list. `forgets_unread`: a pod that cannot
    be read counts as gone; else what was known of it stays.
    """

    source: str
    events: tuple[
        Callable[[tuple[T, ...]], StateEvent],
        Callable[[T], StateEvent],
        Callable[[str], StateEvent],
    ]
    handle: Callable[[StateEvent], None]
    changed: Callable[[], None]
    listed: Callable[[], None]
    log: WatchLog
    forgets_unread: bool = False

    async def replace(self, objects: Sequence[T]) -> None:
        """Take all pods."""
        self.log.listed(self.source, len(objects))
        self.handle(self.events[0](tuple(objects)))
        self.listed()

    def seen(self, one: T) -> None:
        """Take a pod that is new or has changed."""
        self.handle(self.events[1](one))
        self.changed()

    def gone(self, key: ObjectKey) -> None:
        """A pod left the collection."""
        self.handle(self.events[2](key.uid))
        self.changed()

    def unread(self, key: ObjectKey, reason: str) -> None:
        """A pod cannot be read."""
        self.log.unread(self.source, key, reason)
        if self.forgets_unread:
            self.gone(key)

    def failed(self, fault: Fault) -> None:
        """The watch failed and will be tried again."""
        self.log.failed(fault)


@dataclass(eq=False)
class InformerSet:
    """Runs the watches and the probes, and reports to the state how fresh it is.

    `watches` are those of which the state is made; `beside` run too, and hold nothing up but what
    needs them. `synced` is set for good once the state was complete.

    `handle` is the gateway's. `on_effect` gets every effect but probes; `on_change` is called after
    each batch of changes and twice a second. `is_located`: whether it is known on which node a pod
    is.
    """

    handle: Callable[[StateEvent], None]
    prober: Prober
    take_effects: Callable[[], Sequence[Effect]]
    on_effect: Callable[[Effect], None]
    on_change: Callable[[], None]
    is_located: Callable[[str], bool]
    clock: SteadyClock
    log: Logger
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self.watches: tuple[Watch, ...] = ()
        self.beside: tuple[Watch, ...] = ()
        self._is_pending = False
        self._is_listed = False
        self._awaited: frozenset[str] = frozenset()
        self.synced = asyncio.Event()

    @property
    def missing(self) -> str | None:
        """What the state lacks before it can be answered from; None for nothing."""
        unlisted = [watch.name for watch in self.watches if not watch.is_synced]
        if unlisted or not self.watches:
            return f"not listed yet: {', '.join(unlisted) or 'anything'}"
        if self._awaited:
            return (
                f"{len(self._awaited)} pods that may have GPUs and have no plan are still to be "
                "read from the API server"
            )
        return None if self.synced.is_set() else "not synced yet"

    def listed(self) -> None:
        """All assigned pods were listed; those of them that cannot be located are awaited."""
        self._act()
        located = self.is_located
        self._await({uid for uid in self.prober.open if not located(uid)})
        if self._awaited:
            self._report_freshness()
        self.changed()

    def changed(self) -> None:
        """An event was handled; acts on it with what else comes in `BATCH_S`."""
        if not self._is_pending:
            self._is_pending = True
            asyncio.get_running_loop().call_later(BATCH_S, self._settle)

    async def run(self, watches: Sequence[Watch], beside: Sequence[Watch] = ()) -> None:
        """Run until cancelled; a fault of our own ends it."""
        self.watches, self.beside = tuple(watches), tuple(beside)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.prober.run())
            for watch in (*self.watches, *self.beside):
                tasks.create_task(watch.run())
            tasks.create_task(self._tick_on())

    def _settle(self) -> None:
        self._is_pending = False
        self._act()
        if self._awaited:
            self._await(())
            if not self._awaited:
                self._report_freshness()
        self.on_change()

    def _act(self) -> None:
        for effect in self.take_effects():
            if isinstance(effect, Probe):
                self.prober.request(effect)
            else:
                self.on_effect(effect)

    async def _tick_on(self) -> None:
        while True:
            self.tick()
            await self.sleep(TICK_S)

    def tick(self) -> None:
        """Report how fresh the state is, and what time it is."""
        self._report_freshness()
        self.handle(TimePassed(self.clock()))
        self._settle()

    def _report_freshness(self) -> None:
        heard = [watch.observed_at_s for watch in self.watches if watch.is_synced]
        observed = [self.clock.at(one) for one in heard if one is not None]
        if len(observed) == len(self.watches) and not self.synced.is_set():
            self._see_listed()
        is_synced = self.synced.is_set() and not self._awaited
        self.handle(FreshnessSet(is_synced, min(observed, default=0.0)))

    def _see_listed(self) -> None:
        """Everything was listed once: the state is complete when the first probes are read."""
        self._act()
        self._await(() if self._is_listed else self.prober.open)
        self._is_listed = True
        if not self._awaited:
            self.synced.set()
            n_refused = self.prober.n_refused
            self.log.info(logkeys.READY, n_refused=n_refused)

    def _await(self, more: Collection[str]) -> None:
        """Of what was awaited and these, wait for what is open still."""
        self._awaited = self.prober.open & self._awaited.union(more)
