"""Keeps the Node's annotations current: reads the kubelet, and publishes topology and report.

`run` reads soon after each Allocate and each change of the machine, a second time when the kubelet
has settled, and periodically. A mismatch with a plan is emitted once, when it begins.

Where the kubelet's pods cannot be read, every container that has devices is a hold, unless its plan
was read before: the extender knows the plans. Where holdings are unknown, what is published of
containers (holds, and those that run without devices) stays, and the rest is published all the
same: an unhealthy GPU must not wait for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from plugin.kubelet import KubeletRead
from plugin.pods import MismatchKind, device_report, mismatches
from topology.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.allocation import NodeState
    from plugin.kubelet import KubeletView
    from plugin.pods import NodePod, PlanMismatch
    from topology.annotations import DevicesReport

__all__ = ["PlanMismatches", "ReportEvent", "ReportLoop", "ReportRejected", "ReportTiming"]


@dataclass(frozen=True, slots=True)
class ReportTiming:
    """When to read the kubelet, in seconds."""

    soon_s: float = 0.3
    """After an Allocate: the containers of a pod are served within this, so one read has them."""
    settled_s: float = 3.0
    """The second read: by then the kubelet has rejected what it rejects, and reported status."""
    idle_s: float = 30.0
    """Between periodic reads: the end of a pod is no event here, and the devices of a hold without
    a plan are free for the extender only when the report says so."""
    patience_s: float = 5.0
    """For the kubelet to allocate nothing; then PodResources is left out of the read."""
    retry_s: float = 5.0
    """After a read that failed."""


@dataclass(frozen=True, slots=True)
class ReportRejected:
    """A report that no annotation can hold; what was published before stays."""

    reason: str


@dataclass(frozen=True, slots=True)
class PlanMismatches:
    """All mismatches between plans and reality by kind, and those that have begun."""

    new: tuple[PlanMismatch, ...]
    counts: Mapping[str, int]


ReportEvent = KubeletRead | ReportRejected | PlanMismatches


class ReportSink(Protocol):
    """Where reports go."""

    def __call__(self, report: DevicesReport, *, keeps_holds: bool) -> None:
        """Publish this; with `keeps_holds` what is published of containers stays.

        Raises `TopologyError` for a report that cannot be.
        """
        ...


_PACE = ReportTiming()


class ReportLoop:
    """`publish` gets every report, also one that says what the last one said."""

    def __init__(
        self,
        state: NodeState,
        kubelet: KubeletView,
        *,
        publish: ReportSink,
        emit: Callable[[ReportEvent], None],
        pace: ReportTiming = _PACE,
    ) -> None:
        self._state = state
        self._kubelet = kubelet
        self._publish = publish
        self._emit = emit
        self._pace = pace
        self._wanted = asyncio.Event()
        self.has_pods = asyncio.Event()
        """Set once the kubelet's pods were read."""
        self._reported: frozenset[tuple[str, ...]] = frozenset()
        self._bare: set[tuple[str, ...]] = set()

    def trigger(self) -> None:
        """Read and report soon: something has changed."""
        self._wanted.set()

    async def refresh(self) -> bool:
        """Read now, without waiting for quiet, and record it; False: it is incomplete."""
        since = self._state.grants
        snapshot = await self._kubelet.snapshot()
        self._state.see(snapshot, since=since)
        if snapshot.pods is not None:
            self.has_pods.set()
        self._emit(KubeletRead(snapshot.error))
        return not snapshot.error

    async def run(self) -> None:
        """Read and report until cancelled; the first time at once."""
        pace = self._pace
        delays_s = [pace.settled_s]
        while True:
            await self._kubelet.gate.quiet(pace.patience_s)
            is_seen = await self.refresh()
            self._report()
            pause_s = (delays_s.pop() if delays_s else pace.idle_s) if is_seen else pace.retry_s
            if await self._wanted_within(pause_s):
                await asyncio.sleep(pace.soon_s)
                self._wanted.clear()
                delays_s = [pace.settled_s]

    async def _wanted_within(self, pause_s: float) -> bool:
        try:
            async with asyncio.timeout(pause_s):
                await self._wanted.wait()
        except TimeoutError:
            return False
        return True

    def _report(self) -> None:
        state = self._state
        manager = state.topology_manager
        found = mismatches(
            self._living(), state.holdings, resources=state.resources, node=state.node
        )
        lasting = self._lasting(found) if state.knows_holdings else []
        report = device_report(
            found,
            lasting=lasting,
            unhealthy=state.unhealthy,
            policy=None if manager is None else manager.policy,
            scope=None if manager is None else manager.scope,
        )
        try:
            self._publish(report, keeps_holds=not state.knows_holdings)
        except TopologyError as error:
            self._emit(ReportRejected(str(error)))
        if not state.knows_holdings:
            return
        new = tuple(one for one in lasting if _key(one) not in self._reported)
        self._reported = frozenset(map(_key, lasting))
        counts = Counter(one.kind.value for one in lasting)
        self._emit(PlanMismatches(new, {kind.value: counts[kind.value] for kind in MismatchKind}))

    def _living(self) -> tuple[NodePod, ...]:
        """The pods that PodResources lists, where it lists active pods only.

        The phases of the kubelet's list are the API server's, so that a pod which has just ended
        looks as if it ran without its devices.
        """
        pods, active = self._state.pods or (), self._state.active
        if active is None:
            return pods
        return tuple(pod for pod in pods if (pod.namespace, pod.name) in active)

    def _lasting(self, found: tuple[PlanMismatch, ...]) -> list[PlanMismatch]:
        """Where active pods are unknown, of pods without devices those that were so before.

        A pod that really runs without them does so for as long as it lives.
        """
        bare = {_key(one) for one in found if one.kind is MismatchKind.NO_DEVICES}
        before, self._bare = self._bare, bare
        if self._state.active is not None:
            return list(found)
        return [one for one in found if _key(one) not in bare or _key(one) in before]


def _key(mismatch: PlanMismatch) -> tuple[str, ...]:
    """What makes two mismatches the same one, however the pod changes otherwise."""
    return (mismatch.pod.uid, str(mismatch))
