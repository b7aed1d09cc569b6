"""Finds the pods whose request for GPUs was added at admission.

A pod's `managedFields` are computed before mutating admission (Kubernetes 1.36,
apiserver/pkg/endpoints/handlers/create.go), so a request that a webhook, a policy or a LimitRange
added is not in them: without a plan such a pod looks as if it requested nothing. Its metadata show
neither its node nor its scheduler, so each such pod is read once, and one that names a resource of
ours is passed on as a pod that may request it.

These reads hold nothing up, as the pods that need none are most of a cluster: they are few at a
time, and the state is complete without them. Until a pod is read, its devices are known only where
its node's plugin reports them.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from extender.engine.events import PodDeleted, PodFetched, PodsListed, PodUpdated
from extender.state import Probe
from extender.watch.pod_reader import Prober
from kube.objects import PodFacts
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from extender.engine.events import StateEvent
    from extender.watch.watch_log import WatchLog
    from kube.client import PodReader
    from kube.objects import PodObject
    from kube.watch import Backoff

__all__ = ["InjectedRequests"]

N_READERS = 4
"""Pods read at the same time: at 10 ms each 400 a second, so that those of a cluster of 40,000 pods
are read in two minutes after the start, beside the requests."""


@dataclass(eq=False)
class InjectedRequests:
    """Stands between the sink of assigned pods and the gateway. `run` until cancelled.

    `handle` is the gateway's; `changed` is called after a pod was found.
    """

    handle: Callable[[StateEvent], None]
    resources: Sequence[str]
    api: PodReader
    changed: Callable[[], None]
    log: WatchLog
    backoff: Callable[[], Backoff]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        # By uid, of pods whose metadata show no request: whether they have one, None until read.
        self._requests: dict[str, bool | None] = {}
        self._keys = tuple(f"{json.dumps(one)}:".encode() for one in self.resources)
        self._reader = Prober(
            self._read,
            self.api,
            lambda: None,
            self.log,
            self.backoff,
            self.sleep,
            n_readers=N_READERS,
        )

    @property
    def n_open(self) -> int:
        """Number of pods that are still to be read."""
        return self._reader.n_open

    def take(self, event: StateEvent) -> None:
        """Pass an event of the assigned pods on, with what was read of them."""
        match event:
            case PodsListed(pods):
                listed = {pod.uid for pod in pods}
                self._requests = {k: one for k, one in self._requests.items() if k in listed}
                event = PodsListed(tuple([self._checked(pod) for pod in pods]))
            case PodUpdated(pod):
                event = PodUpdated(self._checked(pod))
            case PodDeleted(uid):
                self._requests.pop(uid, None)
            case _:
                pass  # not of assigned pods
        self.handle(event)

    async def run(self) -> None:
        """Read until cancelled."""
        await self._reader.run()

    def _checked(self, pod: PodFacts) -> PodFacts:
        if pod.plan is not None or pod.may_request:
            return pod
        if pod.uid not in self._requests:
            self._requests[pod.uid] = None
            self._reader.request(Probe(pod.namespace, pod.name, pod.uid))
        return replace(pod, may_request=True) if self._requests[pod.uid] else pod

    def _read(self, event: StateEvent) -> None:
        """A pod was read; one that is gone leaves the collection of its own accord."""
        if not isinstance(event, PodFetched) or event.pod.uid not in self._requests:
            return
        pod = event.pod
        has_request = any(key in pod.body for key in self._keys)
        self._requests[pod.uid] = has_request
        if has_request:
            self.handle(PodUpdated(_facts(pod)))
            self.changed()


def _facts(pod: PodObject) -> PodFacts:
    return PodFacts(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        resource_version=pod.resource_version,
        plan=pod.annotations.get(names.PLAN),
        allocated=pod.annotations.get(names.ALLOCATED),
        may_request=True,
    )
