"""Requeues unschedulable pods that fit again.

Each pod that is due is read, and if it still waits for a node its annotation
`coterie.gpu/retry` gets a new value, which makes kube-scheduler retry it. Where another scheduler's
extender has done so since the pod was rejected here, it is left to that one. A requeue that fails
is not retried here: the pod is due again, at growing intervals.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from extender import logkeys
from extender.engine.events import RequeueDropped, RequeueDue
from kube.errors import KubeError, NotFound
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from extender.engine import Gateway
    from extender.pending import Requeue
    from kube.log import Logger
    from kube.objects import PodObject

__all__ = ["Requeuer"]

N_WRITERS = 8
"""Pods read and patched at the same time."""


class RequeueApi(Protocol):
    """What is needed of `kube.client.server`."""

    async def get_pod(self, namespace: str, name: str) -> PodObject | None:
        """Read a pod; None where it is not there. Raises `KubeError`."""
        ...

    async def annotate_pod(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> object:
        """Set annotations. Raises `KubeError`."""
        ...


@dataclass(eq=False)
class Requeuer:
    """`look` takes what is due, `run` acts on it.

    `value` gives what was never given before.
    """

    gateway: Gateway
    api: RequeueApi
    clock: Callable[[], float]
    value: Callable[[], str]
    log: Logger

    def __post_init__(self) -> None:
        self._due: asyncio.Queue[Requeue] = asyncio.Queue()
        self.n_requeued = 0
        self.n_skipped = 0
        self.n_failed = 0

    def look(self) -> None:
        """Take the pods that are due; cheap where none is."""
        for requeue in self.gateway.handle(RequeueDue(self.clock())):
            self._due.put_nowait(requeue)

    async def run(self) -> None:
        """Requeue until cancelled."""
        async with asyncio.TaskGroup() as writers:
            for _ in range(N_WRITERS):
                writers.create_task(self._requeue_all())

    async def _requeue_all(self) -> None:
        while True:
            requeue = await self._due.get()
            try:
                await self._requeue(requeue)
            except KubeError as error:
                self.n_failed += 1
                self._log(logkeys.REQUEUE_FAILED, requeue, str(error))

    async def _requeue(self, requeue: Requeue) -> None:
        pod = await self.api.get_pod(requeue.namespace, requeue.name)
        if pod is None or pod.uid != requeue.uid or pod.node_name is not None or pod.is_deleting:
            self._drop(requeue)
            return
        if requeue.retry is not None and pod.annotations.get(names.RETRY, "") != requeue.retry:
            self._drop(requeue)
            return
        annotations = {names.RETRY: self.value()}
        try:
            await self.api.annotate_pod(requeue.namespace, requeue.name, requeue.uid, annotations)
        except NotFound:
            self._drop(requeue)
            return
        self.n_requeued += 1
        self._log(logkeys.REQUEUED, requeue)

    def _drop(self, requeue: Requeue) -> None:
        self.n_skipped += 1
        self.gateway.handle(RequeueDropped(requeue.uid))

    def _log(self, event: str, requeue: Requeue, detail: str = "") -> None:
        pod = f"{requeue.namespace}/{requeue.name}"
        if detail:
            self.log.warning(event, pod=pod, pod_uid=requeue.uid, detail=detail)
        else:
            self.log.info(event, pod=pod, pod_uid=requeue.uid)
