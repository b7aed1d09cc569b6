"""Wires a live extender together, and runs what works beside its servers.

Everything runs on one event loop and nothing is started before `run`: the watches first, then
probes, requeues and Events. At the end binds in flight are finished before the connections are
closed.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

from extender import logkeys
from extender.clocks import SteadyClock
from extender.engine.events import PendingDeleted, PendingUpdated, RequeueDropped
from extender.execution import (
    BindDependencies,
    BindExecutor,
    PreemptDependencies,
    PreemptExecutor,
    Requeuer,
    rate_deferred,
)
from extender.http.server import freeze
from extender.observe import (
    EffectCounts,
    GroupMetrics,
    GroupReports,
    LiveMetrics,
    Reporter,
    notes_of_answer,
    notes_of_effect,
)
from extender.pending import shown_pod
from extender.protocol import has_group
from extender.state import (
    Agreement,
    Mismatch,
    build_machine_type,
)
from extender.watch import (
    InformerSet,
    InjectedRequests,
    NodeSink,
    PendingMembers,
    PendingWatch,
    Prober,
    Reflectors,
    WatchLog,
)
from kube.client import ApiServer, Requester
from kube.watch import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from extender.config import ExtenderSettings
    from extender.engine import Gateway
    from extender.engine.events import StateEvent
    from extender.observe import Note
    from extender.protocol import Answer
    from extender.state import Effect
    from kube.log import Logger

__all__ = ["LiveExtender"]

BIND_SHARE = 0.8
"""Share of the scheduler's httpTimeout that a bind may take."""
STALE = "state is not fresh: the API server was not heard within staleness_bound_s"


class Connection(Requester, Protocol):
    """What is needed of `kube.client.Transport`, or of `extender.embedded.EmbeddedApi`."""

    @property
    def client_certificate(self) -> Path | None:
        """The file with the certificate that is shown to the server; None: there is none."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...


class LiveExtender:
    """A live extender."""

    def __init__(
        self,
        settings: ExtenderSettings,
        gateway: Gateway,
        transport: Connection,
        *,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._gateway = gateway
        self._transport = transport
        self._log = log
        self._api = ApiServer(transport)
        self._watch_log = WatchLog(log)
        self._effects = EffectCounts()
        self.clock = SteadyClock()
        self._prober = Prober(
            gateway.handle, self._api, self._changed, self._watch_log, _patient_backoff
        )
        self._injected = InjectedRequests(
            gateway.handle,
            gateway.engine.rules.resources,
            self._api,
            self._changed,
            self._watch_log,
            _patient_backoff,
        )
        self._requeuer = Requeuer(gateway, self._api, self.clock, _retry_value, log)
        self._reporter = Reporter(
            api=self._api,
            instance=socket.gethostname(),
            now=_now,
            timer=time.monotonic,
            log=log,
            backoff=_patient_backoff,
            level=settings.events,
        )
        readings = gateway.engine.groups.readings
        self._group_metrics = GroupMetrics(readings)
        self._group_reports = GroupReports(
            readings, self._reporter.record, self.clock, self._group_metrics.observe
        )
        self._feed = InformerSet(
            handle=gateway.handle,
            prober=self._prober,
            take_effects=gateway.cluster.take_effects,
            on_effect=self._on_effect,
            on_change=self._look,
            is_located=lambda uid: gateway.cluster.bound(uid) is not None,
            clock=self.clock,
            log=log,
        )
        build = partial(build_machine_type, demand=gateway.engine.rules.demand)
        self._node_sink = NodeSink(
            gateway.handle, gateway.cluster.reader, build, self._changed, self._watch_log
        )
        kinds = gateway.engine.rules.group_kinds
        self._members = PendingMembers(lambda pod: has_group(pod.labels, pod.annotations, kinds))
        self._reflectors = Reflectors(
            transport, gateway.engine.rules, self._watch_log, self._changed
        )
        self._watches = self._reflectors.of_state(
            self._node_sink,
            take_pods=self._injected.take,
            take_nominated=gateway.handle,
            pods_listed=self._feed.listed,
        )
        total_s = BIND_SHARE * settings.http_timeout_s
        self._binds = BindExecutor(
            BindDependencies(
                handle=gateway.handle,
                api=self._api,
                aligns=gateway.cluster.aligns,
                n_ended=lambda node: gateway.cluster.pods.n_ended[node],
                is_member=gateway.engine.groups.waiting_uids.__contains__,
                is_held=gateway.engine.groups.releases.is_held,
                clock=self.clock,
                timer=time.monotonic,
                backoff=_quick_backoff,
            ),
            total_s=total_s,
        )
        self.end_holds = self._binds.end_holds
        self._preemptions = PreemptExecutor(
            PreemptDependencies(
                handle=gateway.handle,
                api=self._api,
                is_ready=lambda: self.is_ready,
                clock=self.clock,
                timer=time.monotonic,
                backoff=_quick_backoff,
            ),
            total_s=total_s,
        )

    @property
    def is_ready(self) -> bool:
        """Whether the state is complete and fresh."""
        return self._gateway.engine.is_ready(self.clock())

    @property
    def is_healthy(self) -> bool:
        """Whether another extender could do no better: ready, or the API server is away."""
        faults = [one.fault for one in self._watches if one.fault is not None]
        return self.is_ready or any(fault.is_outage for fault in faults)

    @property
    def unready_because(self) -> str:
        """Why it is not."""
        return self._feed.missing or STALE

    @property
    def metrics(self) -> LiveMetrics:
        """Metrics beside those of every extender."""
        return LiveMetrics(
            feed=self._feed,
            prober=self._prober,
            injected=self._injected,
            requeuer=self._requeuer,
            reporter=self._reporter,
            effects=self._effects,
            timer=time.monotonic,
            unix_time=time.time,
            certificates=self._certificates,
            groups=self._group_metrics,
        )

    def _certificates(self) -> Mapping[str, Path]:
        files = {
            "serving": self._settings.tls_cert,
            "api_server": self._transport.client_certificate,
        }
        return {name: path for name, path in files.items() if path is not None}

    async def bind(self, body: bytes) -> Answer:
        """Answer a bind call."""
        return await self._binds.bind(body)

    async def preempt(self, body: bytes) -> Answer:
        """Answer a preempt call."""
        return await self._preemptions.preempt(body)

    async def read_pod(self, namespace: str, name: str) -> bytes | None:
        """The JSON of a pod; None where it is not there. Raises `KubeError`."""
        pod = await self._api.get_pod(namespace, name)
        return None if pod is None else pod.body

    def on_answer(self, answer: Answer) -> None:
        """Report an answer to users, where that is worth an Event."""
        self._report(notes_of_answer(answer, of_plans=self._settings.events == "all"))

    async def run(self) -> None:
        """Run what stands beside the servers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            pending = PendingWatch(
                self._see_pending, self._changed, self.clock, self._end_wait, self._watch_log
            )
            beside = self._reflectors.of_pending(pending)
            tasks.create_task(self._feed.run(self._watches, beside))
            tasks.create_task(self._node_sink.run())
            tasks.create_task(self._injected.run())
            tasks.create_task(self._requeuer.run())
            tasks.create_task(rate_deferred(self._gateway))
            tasks.create_task(self._reporter.run())
            tasks.create_task(self._freeze_when_synced())

    async def close(self) -> None:
        """Finish the binds in flight, close the connections."""
        await self._binds.drain()
        await self._transport.close()

    def _see_pending(self, event: StateEvent) -> None:
        """A pending pod: members of groups decide, the others are shown to people alone."""
        of_members = self._members.pick(event)
        if of_members is not None:
            self._gateway.handle(of_members)
        engine = self._gateway.engine
        match event:
            case PendingUpdated(pod, _):
                engine.pending.show(pod.uid, shown_pod(pod, engine.rules))
            case PendingDeleted(uid):
                engine.pending.show(uid, None)
            case _:
                pass

    def _end_wait(self, uid: str) -> None:
        if self._gateway.engine.pending.rejected(uid) is not None:
            self._gateway.handle(RequeueDropped(uid))

    def _look(self) -> None:
        self._requeuer.look()
        self._group_reports.look()

    def _changed(self) -> None:
        self._feed.changed()

    def _on_effect(self, effect: Effect) -> None:
        """Something did not go as planned."""
        self._effects.add(effect)
        notes = tuple(notes_of_effect(effect))
        for note in notes:
            self._log.warning(
                logkeys.DISCREPANCY,
                reason=note.reason.value,
                object="/".join(filter(None, (note.about.namespace, note.about.name))),
                detail=note.message,
            )
        if isinstance(effect, Mismatch | Agreement):
            self._reporter.annotate(effect)
        self._report(notes)

    def _report(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._reporter.record(note)

    async def _freeze_when_synced(self) -> None:
        await self._feed.synced.wait()
        freeze()


def _now() -> datetime:
    return datetime.now(UTC)


def _retry_value() -> str:
    """The time, to the microsecond: what no earlier requeue of the pod has written."""
    return _now().isoformat(timespec="microseconds")


def _quick_backoff() -> Backoff:
    """Inside a bind or a preemption, of which the scheduler waits for the end."""
    return Backoff(first_s=0.1, cap_s=1.0, jitter=random.random)


def _patient_backoff() -> Backoff:
    """For tasks that are not awaited."""
    return Backoff(first_s=0.1, cap_s=30.0, jitter=random.random)
