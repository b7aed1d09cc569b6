"""Keeps the live state at what the API server says.

What it answers: nothing itself; it carries. Three reflectors (nodes, assigned pods, nominated pods)
tell their sinks, the sinks tell the desk. After each batch of changes it hands on what the state
wants done: probes are read here, everything else goes to `on_effect`, and `on_change` may wake
pods.

Order is kept per object: a node whose machine type must be built first (a second of work, done in a
thread) is shown when it is built, as it is by then; the nodes beside it do not wait.

The state is complete when all three collections were listed once and the pods that had to be read
in full were read, however long that takes: until then nobody knows on which nodes their GPUs are,
and these would be given away again. A later list may show such pods too, and the state is not
complete until those are read. Pods that cannot be read at all (`extender.watch.pod_reader`) hold
nothing up. The state is as fresh as the collection last heard of.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from extender import logkeys
from extender.state import Probe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from extender.clocks import SteadyClock
    from extender.log import Logger
    from extender.state import Effect
    from extender.watch.pod_reader import Prober
    from extender.watch.watch_log import WatchLog
    from kube.objects import ObjectKey, PodFacts, PodObject
    from kube.watch import Fault

__all__ = [
    "Feed",
    "FeedDesk",
    "FeedTools",
    "NominatedSink",
    "PodDesk",
    "PodSink",
    "Watch",
    "WatchCounts",
]

BATCH_S = 0.02
"""How long changes are gathered before they are acted on: settling the state costs the same for one
as for a hundred, and a request that comes meanwhile settles it for itself."""
TICK_S = 0.5
"""How often freshness is told and assumptions expire."""


class PodDesk(Protocol):
    """What the sinks of pods need of `extender.decision_log.gateway`."""

    def see_pod(self, pod: PodFacts) -> None:
        """An assigned pod as the metadata watch shows it."""
        ...

    def lose_pod(self, uid: str) -> None:
        """An assigned pod ended or is gone."""
        ...

    def replace_pods(self, pods: Sequence[PodFacts]) -> None:
        """All assigned pods."""
        ...

    def see_nominated(self, pod: PodObject) -> None:
        """A pending pod that is nominated to a node."""
        ...

    def lose_nominated(self, uid: str) -> None:
        """The pod is nominated no more, is bound or is gone."""
        ...

    def replace_nominated(self, pods: Sequence[PodObject]) -> None:
        """All nominated pods."""
        ...


class FeedDesk(Protocol):
    """What the feed itself needs of `extender.decision_log.gateway`."""

    def set_freshness(self, *, is_synced: bool, observed_at_s: float) -> None:
        """How fresh the watches are."""
        ...

    def expire(self, now_s: float) -> None:
        """Time passed."""
        ...


class WatchCounts(Protocol):
    """What has happened on a watch since the start."""

    @property
    def n_lists(self) -> int:
        """Complete lists."""
        ...

    @property
    def n_events(self) -> int:
        """Changes."""
        ...

    @property
    def n_faults(self) -> int:
        """Tries that failed."""
        ...

    @property
    def n_unread(self) -> int:
        """Objects that could not be read."""
        ...


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
    def counts(self) -> WatchCounts:
        """What has happened since the start."""
        ...

    async def run(self) -> None:
        """List and watch until cancelled."""
        ...


class PodSink:
    """A `kube.watch.reflector.Sink` of assigned pods' metadata."""

    def __init__(
        self,
        desk: PodDesk,
        *,
        changed: Callable[[], None],
        listed: Callable[[], None],
        log: WatchLog,
    ) -> None:
        self._desk = desk
        self._changed = changed
        self._listed = listed
        self._log = log

    async def replace(self, objects: Sequence[PodFacts]) -> None:
        """Take all assigned pods."""
        self._log.listed("assigned_pods", len(objects))
        self._desk.replace_pods(objects)
        self._listed()

    def seen(self, one: PodFacts) -> None:
        """Take a pod that is new or has changed."""
        self._desk.see_pod(one)
        self._changed()

    def gone(self, key: ObjectKey) -> None:
        """A pod ended or is gone."""
        self._desk.lose_pod(key.uid)
        self._changed()

    def unread(self, key: ObjectKey, reason: str) -> None:
        """What we knew of the pod, if anything, is the best there is."""
        self._log.unread("assigned_pods", key, reason)

    def failed(self, fault: Fault) -> None:
        """The watch failed and will be tried again."""
        self._log.failed(fault)


class NominatedSink:
    """A `kube.watch.reflector.Sink` of nominated pods, whole."""

    def __init__(self, desk: PodDesk, *, changed: Callable[[], None], log: WatchLog) -> None:
        self._desk = desk
        self._changed = changed
        self._log = log

    async def replace(self, objects: Sequence[PodObject]) -> None:
        """Take all nominated pods."""
        self._log.listed("nominated_pods", len(objects))
        self._desk.replace_nominated(objects)
        self._changed()

    def seen(self, one: PodObject) -> None:
        """Take a pod that is new or has changed."""
        self._desk.see_nominated(one)
        self._changed()

    def gone(self, key: ObjectKey) -> None:
        """The pod is nominated no more, is bound or is gone."""
        self._desk.lose_nominated(key.uid)
        self._changed()

    def unread(self, key: ObjectKey, reason: str) -> None:
        """A pod that cannot be read claims nothing."""
        self._log.unread("nominated_pods", key, reason)
        self._desk.lose_nominated(key.uid)
        self._changed()

    def failed(self, fault: Fault) -> None:
        """The watch failed and will be tried again."""
        self._log.failed(fault)


@dataclass(frozen=True, slots=True)
class FeedTools:
    """What a feed stands on.

    `on_effect` gets every effect but probes; `on_change` is called after each batch of changes and
    twice a second. `is_located` tells whether it is known on which node a pod is.
    """

    desk: FeedDesk
    prober: Prober
    take_effects: Callable[[], Sequence[Effect]]
    on_effect: Callable[[Effect], None]
    on_change: Callable[[], None]
    is_located: Callable[[str], bool]
    clock: SteadyClock
    log: Logger
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Feed:
    """Runs the watches and the probes, and tells the state how fresh it is.

    `synced` is set for good once the state was complete.
    """

    def __init__(self, tools: FeedTools) -> None:
        self._tools = tools
        self._watches: tuple[Watch, ...] = ()
        self._is_pending = False
        self._is_listed = False
        self._awaited: frozenset[str] = frozenset()
        self._read = asyncio.Event()
        self._read.set()
        self.synced = asyncio.Event()

    @property
    def watches(self) -> tuple[Watch, ...]:
        """The watches that run."""
        return self._watches

    @property
    def missing(self) -> str | None:
        """What the state lacks before it can be answered from; None for nothing."""
        unlisted = [watch.name for watch in self._watches if not watch.is_synced]
        if unlisted or not self._watches:
            return f"not listed yet: {', '.join(unlisted) or 'anything'}"
        if self._awaited:
            return (
                f"{len(self._awaited)} pods that may have GPUs and have no plan are still to be "
                "read from the API server"
            )
        return None if self.synced.is_set() else "not synced yet"

    async def all_read(self) -> None:
        """Wait until the pods of the last list are read that had to be read in full."""
        await self._read.wait()

    def listed(self) -> None:
        """All assigned pods were listed; those of them that nobody can locate are awaited."""
        self._act()
        located = self._tools.is_located
        self._await({uid for uid in self._tools.prober.open if not located(uid)})
        if self._awaited:
            self._tell_freshness()
        self.changed()

    def changed(self) -> None:
        """Something was told to the desk; acts on it with what else comes in `BATCH_S`."""
        if not self._is_pending:
            self._is_pending = True
            asyncio.get_running_loop().call_later(BATCH_S, self._settle)

    async def run(self, watches: Sequence[Watch]) -> None:
        """Run until cancelled; a fault of our own ends it."""
        self._watches = tuple(watches)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tools.prober.run())
            for watch in self._watches:
                tasks.create_task(watch.run())
            tasks.create_task(self._tick_on())

    def _settle(self) -> None:
        self._is_pending = False
        self._act()
        if self._awaited:
            self._await(())
            if not self._awaited:
                self._tell_freshness()
        self._tools.on_change()

    def _act(self) -> None:
        for effect in self._tools.take_effects():
            if isinstance(effect, Probe):
                self._tools.prober.ask(effect)
            else:
                self._tools.on_effect(effect)

    async def _tick_on(self) -> None:
        while True:
            self.tick()
            await self._tools.sleep(TICK_S)

    def tick(self) -> None:
        """Tell how fresh the state is, and what time it is."""
        self._tell_freshness()
        self._tools.desk.expire(self._tools.clock())
        self._settle()

    def _tell_freshness(self) -> None:
        heard = [watch.observed_at_s for watch in self._watches if watch.is_synced]
        observed = [self._tools.clock.at(one) for one in heard if one is not None]
        if len(observed) == len(self._watches) and not self.synced.is_set():
            self._see_listed()
        self._tools.desk.set_freshness(
            is_synced=self.synced.is_set() and not self._awaited,
            observed_at_s=min(observed, default=0.0),
        )

    def _see_listed(self) -> None:
        """Everything was listed once: the state is complete when the first probes are read."""
        self._act()
        self._await(() if self._is_listed else self._tools.prober.open)
        self._is_listed = True
        if not self._awaited:
            self.synced.set()
            n_refused = self._tools.prober.n_refused
            self._tools.log.info(logkeys.READY, **{logkeys.N_REFUSED: n_refused})

    def _await(self, more: Collection[str]) -> None:
        """Of what was awaited and these, wait for what is open still."""
        self._awaited = self._tools.prober.open & self._awaited.union(more)
        if self._awaited:
            self._read.clear()
        else:
            self._read.set()
