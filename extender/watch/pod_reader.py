"""Reads the pods that metadata alone do not explain.

For each `Probe` of the live state it reads the pod in full and hands it to the gateway, or reports
that the pod is gone. Many at a time; a read that failed is retried for as long as the API server
may answer, since until then it is not known where the pod is.

A pod that the API server will not give us (a missing permission, an object that cannot be read) is
retried once a minute and counts as refused, not as open: it must not hold up the start for ever. It
is logged.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.engine.events import PodDeleted, PodFetched
from kube.errors import KubeError, Malformed
from kube.objects import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.engine.events import StateEvent
    from extender.state import Probe
    from extender.watch.watch_log import WatchLog
    from kube.client import PodReader
    from kube.objects import PodObject
    from kube.watch import Backoff

__all__ = ["Prober"]

N_READERS = 64
"""Pods read at the same time: at 10 ms each thousands a second, so that a cluster full of pods that
others placed is known seconds after the start."""
REFUSED_AGAIN_S = 60.0
"""Before a pod that was refused is tried again."""
INTERNAL_ERROR = 500
FAULTS_OF_POD = 5
"""Tries after which an internal error of the API server (500) is the pod's own: an object that it
cannot decode fails so, and always will."""


@dataclass(eq=False)
class Prober:
    """Takes probes with `request`, reads them in `run`, at most `n_readers` at a time.

    `handle` takes `PodFetched` or `PodDeleted` for each; `changed` is called after each event.
    """

    handle: Callable[[StateEvent], None]
    api: PodReader
    changed: Callable[[], None]
    log: WatchLog
    backoff: Callable[[], Backoff]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    n_readers: int = N_READERS

    def __post_init__(self) -> None:
        self._queue: asyncio.Queue[Probe] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._reading: set[str] = set()
        self._again: dict[str, Probe] = {}
        self._refused: dict[str, Probe] = {}
        self._has_refused = asyncio.Event()
        self.n_read = 0
        self.n_failed = 0

    @property
    def open(self) -> frozenset[str]:
        """Pods that are still to be read, without those that were refused."""
        return frozenset((self._waiting | self._reading) - self._refused.keys())

    @property
    def n_open(self) -> int:
        """Number of pods that are still to be read."""
        return len(self.open)

    @property
    def n_refused(self) -> int:
        """Pods that cannot be read, for now: what they hold is not known."""
        return len(self._refused)

    def request(self, probe: Probe) -> None:
        """Have a pod read from now on; what is being read may be older, so it is read once more.

        One pod is never read twice at a time: the older answer might come last.
        """
        if probe.uid in self._reading:
            self._again[probe.uid] = probe
        elif probe.uid not in self._waiting:
            self._waiting.add(probe.uid)
            self._queue.put_nowait(probe)

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as readers:
            for _ in range(self.n_readers):
                readers.create_task(self._read_all())
            readers.create_task(self._retry_refused())

    async def _retry_refused(self) -> None:
        while True:
            await self._has_refused.wait()
            self._has_refused.clear()
            await self.sleep(REFUSED_AGAIN_S)
            for probe in tuple(self._refused.values()):
                self.request(probe)

    async def _read_all(self) -> None:
        while True:
            probe = await self._queue.get()
            self._waiting.discard(probe.uid)
            self._reading.add(probe.uid)
            try:
                pod = await self._read(probe)
            except KubeError as error:
                key = ObjectKey(probe.namespace, probe.name, probe.uid)
                self.log.unread("pod", key, str(error))
                self._refused[probe.uid] = probe
                self._has_refused.set()
                self.changed()
            else:
                self._refused.pop(probe.uid, None)
                self._report(probe, pod)
            self._reading.discard(probe.uid)
            again = self._again.pop(probe.uid, None)
            if again is not None:
                self.request(again)

    def _report(self, probe: Probe, pod: PodObject | None) -> None:
        self.n_read += 1
        if pod is None or pod.uid != probe.uid:
            self.handle(PodDeleted(probe.uid))
        else:
            self.handle(PodFetched(pod))
        self.changed()

    async def _read(self, probe: Probe) -> PodObject | None:
        """Read the pod; raises `KubeError` where another try would meet the same."""
        backoff = self.backoff()
        n_broken = 0
        while True:
            try:
                return await self.api.get_pod(probe.namespace, probe.name)
            except KubeError as error:
                self.n_failed += 1
                if isinstance(error, Malformed) or not error.is_transient:
                    raise
                n_broken += error.status == INTERNAL_ERROR
                if n_broken >= FAULTS_OF_POD:
                    raise
                delay_s = backoff.next_s(retry_after_s=error.retry_after_s)
            await self.sleep(delay_s)
