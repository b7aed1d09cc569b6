"""Turns the events of the plugin's parts into log lines and metrics.

A plugin whose telemetry drops everything behaves the same. `plugin.logkeys` names the log events;
docs/plugin.md lists their fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin import logkeys
from plugin.allocation import Ambiguous, Identified
from plugin.allocator import AllocationAnswer, Identification
from plugin.deviceplugin import CallOutcome, CallRefused, DevicePluginMethod, RegistrationPhase
from plugin.kubelet import KubeletRead
from plugin.machine import ReaderCondition
from plugin.publish import AccessChecked, NodeWritten, PlanMismatches, ReportRejected

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kube.log import Logger
    from plugin.allocation import DeviceRequest, Requester
    from plugin.allocator import AllocatorEvent
    from plugin.deviceplugin import DevicePluginCall, RegistrationChange
    from plugin.machine import GpuEvent
    from plugin.observe.metrics import PluginMetrics
    from plugin.publish import AccessEvent, ReportEvent, WriteEvent

__all__ = ["Telemetry"]


class Telemetry:
    """Used on one event loop."""

    def __init__(self, log: Logger, metrics: PluginMetrics) -> None:
        self.log = log
        self._metrics = metrics
        self._kubelet_error = ""
        self._condition = ReaderCondition()

    # --- the kubelet's calls ---

    def call_answered(self, call: DevicePluginCall) -> None:
        """Count a call of the kubelet; log it where it failed."""
        self._metrics.call_seconds.labels(call.resource, call.verb.value).observe(call.duration_s)
        self._metrics.calls.labels(call.resource, call.verb.value, call.outcome.value).inc()
        if call.outcome is not CallOutcome.OK:
            self.log.warning(
                logkeys.CALL_FAILED,
                resource=call.resource,
                verb=call.verb.value,
                reason=call.outcome.value,
                detail=call.detail,
                ms=round(1000 * call.duration_s, 3),
            )

    def allocator_event(self, event: AllocatorEvent) -> None:
        """Log and count what an allocator did."""
        match event:
            case Identification():
                self._metrics.identity_seconds.labels(event.how.value).observe(event.duration_s)
            case KubeletRead():
                self.kubelet_read(event.error)
            case AllocationAnswer():
                self._answered(event)

    def registration_changed(self, change: RegistrationChange) -> None:
        """Log and count a change of a resource's registration."""
        is_registered = change.phase is RegistrationPhase.REGISTERED
        self._metrics.registered.labels(change.resource).set(is_registered)
        if is_registered:
            self._metrics.registrations.labels(change.resource).inc()
        is_fault = change.phase in {RegistrationPhase.FAILED, RegistrationPhase.LOST}
        (self.log.warning if is_fault else self.log.info)(
            logkeys.REGISTRATION,
            resource=change.resource,
            phase=change.phase.value,
            detail=change.detail,
            delay_s=round(change.delay_s, 3),
        )

    # --- requests to the kubelet ---

    def kubelet_read(self, error: str) -> None:
        """Count a failed or incomplete read of the kubelet; log an error once while it lasts."""
        if error:
            self._metrics.kubelet_failures.inc()
        if error and error != self._kubelet_error:
            self.log.warning(logkeys.KUBELET_UNREACHABLE, detail=error)
        self._kubelet_error = error

    def topology_manager(self, policy: str, scope: str) -> None:
        """Log new settings of the kubelet's Topology Manager."""
        self.log.info(logkeys.TOPOLOGY_MANAGER, policy=policy, scope=scope)

    # --- the machine ---

    def plugin_begins(self, resources: Collection[str], *, is_serving: bool) -> None:
        """Show the metrics of these resources and of no others."""
        self._metrics.follow(resources, is_serving=is_serving)

    def machine_read(
        self, n_devices: Mapping[str, int], notes: Sequence[str], warnings: Sequence[str] = ()
    ) -> None:
        """Log a machine that is served from now on."""
        level = self.log.warning if warnings else self.log.info
        level(logkeys.MACHINE_READ, n_devices=n_devices, notes=[*warnings, *notes])

    def links_read(self, n_up: int) -> None:
        """Show how many accelerator links of the machine are up."""
        self._metrics.accelerator_links.set(n_up)

    def devices_changed(self, unhealthy: Mapping[str, str]) -> None:
        """Log which devices are unhealthy now."""
        level = self.log.warning if unhealthy else self.log.info
        level(logkeys.DEVICES_CHANGED, unhealthy=dict(unhealthy))

    def devices_listed(self, resource: str, *, n_healthy: int, n_unhealthy: int) -> None:
        """Set the number of devices of a resource."""
        self._metrics.devices.labels(resource, "healthy").set(n_healthy)
        self._metrics.devices.labels(resource, "unhealthy").set(n_unhealthy)

    def cdi_failed(self, reason: str) -> None:
        """Log a device without a CDI specification."""
        self.log.warning(logkeys.CDI_FAILED, reason=reason)

    def access_event(self, event: AccessEvent) -> None:
        """Log whether containers can use their devices, or an Event that could not be written."""
        if isinstance(event, AccessChecked):
            level = self.log.warning if event.problems else self.log.info
            level(logkeys.ACCESS_CHECKED, problems=list(event.problems))
        else:
            self.log.warning(logkeys.EVENT_FAILED, detail=event.detail)

    def gpu_event(self, event: GpuEvent, *, counts: bool) -> None:
        """Log and count an event of a GPU."""
        self._metrics.gpu_events.labels(event.kind.value, str(counts).lower()).inc()
        (self.log.warning if counts else self.log.info)(
            logkeys.GPU_EVENT,
            kind=event.kind.value,
            uuid=event.uuid,
            xid=None if event.code is None else event.code.number,
            counts=counts,
        )

    def reader_failed(self, what: str, reason: str, *, n_failures: int) -> None:
        """Count a failed request to the machine; log the first of a row."""
        self._metrics.reader_failures.labels(what).inc()
        if n_failures == 1:
            self.log.warning(logkeys.READER_FAILED, what=what, reason=reason)

    def reader_works(self, what: str) -> None:
        """Log that a request which had failed works again."""
        self.log.info(logkeys.READER_RECOVERED, what=what)

    def reader_condition(self, condition: ReaderCondition) -> None:
        """Show which GPUs report no events, and whether a restart of the plugin may be needed."""
        before, self._condition = self._condition, condition
        without_events, reason = condition.without_events, condition.restart_reason
        self._metrics.gpus_without_events.set(len(without_events))
        self._metrics.restart_needed.set(bool(reason))
        if without_events != before.without_events:
            level = self.log.warning if without_events else self.log.info
            level(logkeys.GPUS_WITHOUT_EVENTS, uuids=sorted(without_events))
        if reason and reason != before.restart_reason:
            self.log.warning(logkeys.RESTART_NEEDED, reason=reason)

    # --- the Node ---

    def report_event(self, event: ReportEvent) -> None:
        """Log and count what the report loop did."""
        match event:
            case KubeletRead():
                self.kubelet_read(event.error)
            case ReportRejected():
                self._metrics.node_write_failures.labels("report").inc()
                # Nothing retries it: the next report may fit.
                self.log.warning(
                    logkeys.NODE_WRITE_FAILED, reason="report", detail=event.reason, delay_s=None
                )
            case PlanMismatches():
                self._mismatches(event)

    def write_event(self, event: WriteEvent) -> None:
        """Log and count a write of the Node."""
        if isinstance(event, NodeWritten):
            self._metrics.node_writes.inc()
            self.log.info(logkeys.NODE_WRITTEN, keys=list(event.keys), generation=event.generation)
            return
        self._metrics.node_write_failures.labels(event.reason.value).inc()
        self.log.warning(
            logkeys.NODE_WRITE_FAILED,
            reason=event.reason.value,
            detail=str(event.error),
            delay_s=round(event.delay_s, 3),
        )

    def _answered(self, answer: AllocationAnswer) -> None:
        """Log one line for each answer about one container."""
        is_allocate = answer.method is DevicePluginMethod.ALLOCATE
        result, fields = answer.result, _request_fields(answer.request, answer.requester)
        if isinstance(result, CallRefused):
            if is_allocate:
                fields["ids"] = sorted(answer.request.must_include)
            else:
                self._metrics.preferred_allocations.labels("refused").inc()
            self.log.warning(logkeys.REFUSED, **fields, reason=result.reason)
            return
        basis = result.basis.value
        if not is_allocate:
            self._metrics.preferred_allocations.labels(basis).inc()
            self.log.debug(
                logkeys.PREFERRED_ALLOCATION, **fields, ids=list(result.ids), basis=basis
            )
            return
        fields |= {"ids": sorted(answer.request.must_include), "basis": basis}
        if result.notes:
            self.log.warning(logkeys.ALLOCATED, **fields, notes=list(result.notes))
        else:
            self.log.info(logkeys.ALLOCATED, **fields)

    def _mismatches(self, found: PlanMismatches) -> None:
        for one in found.new:
            self.log.warning(
                logkeys.PLAN_MISMATCH,
                kind=one.kind.value,
                pod=f"{one.pod.namespace}/{one.pod.name}",
                pod_uid=one.pod.uid,
                detail=str(one),
            )
        for kind, count in found.counts.items():
            self._metrics.plan_mismatches.labels(kind).set(count)


def _request_fields(request: DeviceRequest, requester: Requester) -> dict[str, object]:
    fields: dict[str, object] = {
        "resource": request.resource,
        "size": request.size,
        "n_available": len(request.available),
    }
    if isinstance(requester, Identified):
        pod = requester.pod
        fields |= {"pod": f"{pod.namespace}/{pod.name}", "pod_uid": pod.uid}
        fields["container"] = requester.container.name
    elif isinstance(requester, Ambiguous):
        names = (f"{one.pod.namespace}/{one.pod.name}" for one in requester.candidates)
        fields["pods"] = list(dict.fromkeys(names))
    else:
        fields["detail"] = requester.reason
    return fields
