"""Wakes parked pods that fit again.

What it answers: nothing; each pod that the engine names is looked at, and if it still waits for a
node its annotation `coterie.gpu/retry` is given a new value, which makes kube-scheduler try it
again. Where another replica has done so since the pod was rejected here, it is left to the replica
that the scheduler then asked. A wake that fails is not tried again here: the engine names the pod
anew, at growing intervals.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from extender import logkeys
from kube.errors import KubeError, NotFound
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from extender.log import Logger
    from extender.unschedulable import Wake
    from kube.objects import PodObject

__all__ = ["WakeApi", "WakeDesk", "Waker"]

N_WRITERS = 8
"""Pods looked at and touched at the same time."""


class WakeDesk(Protocol):
    """What is needed of `extender.decision_log.gateway`."""

    def wakes(self, now_s: float) -> Sequence[Wake]:
        """Take the pods to wake now."""
        ...

    def sleep_on(self, uid: str) -> None:
        """The pod needs no waking any more."""
        ...


class WakeApi(Protocol):
    """What is needed of `kube.client.server`."""

    async def get_pod(self, namespace: str, name: str) -> PodObject | None:
        """Read a pod; None where it is not there. Raises `KubeError`."""
        ...

    async def annotate_pod(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> object:
        """Set annotations. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class _Tools:
    desk: WakeDesk
    api: WakeApi
    clock: Callable[[], float]
    value: Callable[[], str]
    log: Logger


class Waker:
    """`look` takes what is due, `run` acts on it. `value` gives what was never given before."""

    def __init__(
        self,
        desk: WakeDesk,
        api: WakeApi,
        *,
        clock: Callable[[], float],
        value: Callable[[], str],
        log: Logger,
    ) -> None:
        self._tools = _Tools(desk, api, clock, value, log)
        self._due: asyncio.Queue[Wake] = asyncio.Queue()
        self.n_woken = 0
        self.n_in_vain = 0
        self.n_failed = 0

    def look(self) -> None:
        """Take the pods that are due; cheap where none is."""
        for wake in self._tools.desk.wakes(self._tools.clock()):
            self._due.put_nowait(wake)

    async def run(self) -> None:
        """Wake until cancelled."""
        async with asyncio.TaskGroup() as writers:
            for _ in range(N_WRITERS):
                writers.create_task(self._wake_all())

    async def _wake_all(self) -> None:
        while True:
            wake = await self._due.get()
            try:
                await self._wake(wake)
            except KubeError as error:
                self.n_failed += 1
                self._say(logkeys.REQUEUE_FAILED, wake, str(error))

    async def _wake(self, wake: Wake) -> None:
        pod = await self._tools.api.get_pod(wake.namespace, wake.name)
        if pod is None or pod.uid != wake.uid or pod.node_name is not None or pod.is_deleting:
            self._sleep_on(wake)
            return
        if wake.retry is not None and pod.annotations.get(names.RETRY, "") != wake.retry:
            self._sleep_on(wake)
            return
        annotations = {names.RETRY: self._tools.value()}
        try:
            await self._tools.api.annotate_pod(wake.namespace, wake.name, wake.uid, annotations)
        except NotFound:
            self._sleep_on(wake)
            return
        self.n_woken += 1
        self._say(logkeys.REQUEUED, wake)

    def _sleep_on(self, wake: Wake) -> None:
        self.n_in_vain += 1
        self._tools.desk.sleep_on(wake.uid)

    def _say(self, event: str, wake: Wake, detail: str = "") -> None:
        fields = {logkeys.POD: f"{wake.namespace}/{wake.name}", logkeys.POD_UID: wake.uid}
        if detail:
            self._tools.log.warning(event, **fields, **{logkeys.DETAIL: detail})
        else:
            self._tools.log.info(event, **fields)
