"""The metrics of a node: calls of the kubelet, devices, identities, writes.

What it answers: the registry behind `/metrics`. Labels are closed sets, made at the start so that a
first event shows as a rise, or resources of the node: never a pod or a device.

A metric's help says what it is good for; docs/plugin.md is generated from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from kube.metrics import program_registry
from plugin.allocation import AllocationBasis
from plugin.allocator import IdentifiedBy
from plugin.deviceplugin import CallOutcome, DevicePluginMethod, RegistrationPhase
from plugin.machine import EventKind
from plugin.pods import MismatchKind
from plugin.publish import WriteFailureReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.deviceplugin import DevicePluginCall, RegistrationChange
    from plugin.machine import GpuEvent
    from plugin.publish import WriteFailure

__all__ = ["PluginMetrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Around the goals of 10 ms, and of 30 ms where the kubelet is read, up to the deadline of 1 s."""


class PluginMetrics:
    """Counts what happens; `registry` is what an exporter shows."""

    def __init__(self) -> None:
        self.registry = program_registry("coterie_plugin")
        self._call_seconds = Histogram(
            "coterie_plugin_call_duration_seconds",
            "Time from a call of the kubelet to the answer. The kubelet's sync loop waits for it: "
            "pods start that much later.",
            ["resource", "verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._calls = self._counter(
            "calls",
            "Calls of the kubelet. Each refused is a pod that failed for good; late and failed are "
            "faults.",
            "resource",
            "verb",
            "outcome",
        )
        self._identity_seconds = Histogram(
            "coterie_plugin_identity_lookup_duration_seconds",
            "Time to find the container that a call is for. By how: unreachable, or a large share "
            "of ambiguous, is worth a look.",
            ["how"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._choices = self._counter(
            "choices",
            "Devices offered. planned over all is the share of containers that were offered just "
            "what the extender planned.",
            "why",
        )
        self._devices = self._gauge(
            "devices",
            "Devices that are listed; a rise of unhealthy is capacity that is lost.",
            "resource",
            "state",
        )
        self._registered = self._gauge(
            "registered",
            "1 while the kubelet watches the devices; 0: no pod gets one.",
            "resource",
        )
        self._registrations = self._counter(
            "registrations",
            "Times that the kubelet began to watch: one for each start of the kubelet or the "
            "plugin; more means that they lose each other.",
            "resource",
        )
        self._writes = self._counter(
            "node_writes", "Writes of the own Node that were accepted; none on an idle node."
        )
        self._failed_writes = self._counter(
            "node_write_failures",
            "Requests to the API server that failed: until one succeeds the extender plans with "
            "what it knew.",
            "reason",
        )
        self._events = self._counter(
            "gpu_events",
            "Events of GPUs that the driver reported; the log names GPU and XID.",
            "kind",
            "counts",
        )
        self._reader_failures = self._counter(
            "reader_failures", "Reads of the machine that failed.", "what"
        )
        self._kubelet_failures = self._counter(
            "kubelet_failures",
            "Requests to the kubelet that failed; the log event kubelet_unreachable says why.",
            "what",
        )
        self._differences = self._gauge(
            "differences", "Containers whose devices are not as planned, now.", "kind"
        )
        self._create_closed_sets()

    def _create_closed_sets(self) -> None:
        """Make the series whose labels are known: a rise from nothing is not seen."""
        for how in IdentifiedBy:
            self._identity_seconds.labels(how.value)
        for why in AllocationBasis:
            self._choices.labels(why.value)
        self._choices.labels("refused")
        for reason in WriteFailureReason:
            self._failed_writes.labels(reason.value)
        self._failed_writes.labels("report")
        for kind in EventKind:
            for counts in ("true", "false"):
                self._events.labels(kind.value, counts)
        for what in ("wait", "faults", "read"):
            self._reader_failures.labels(what)
        self._kubelet_failures.labels("look")
        for mismatch in MismatchKind:
            self._differences.labels(mismatch.value)

    def _add_resource(self, resource: str) -> None:
        """Make the series of a resource that is served."""
        for verb in DevicePluginMethod:
            self._call_seconds.labels(resource, verb.value)
            for outcome in CallOutcome:
                self._calls.labels(resource, verb.value, outcome.value)
        self._registered.labels(resource)
        self._registrations.labels(resource)

    def answered(self, call: DevicePluginCall) -> None:
        """Count a call of the kubelet."""
        verb = call.verb.value
        self._call_seconds.labels(call.resource, verb).observe(call.duration_s)
        self._calls.labels(call.resource, verb, call.outcome.value).inc()

    def identified(self, how: str, duration_s: float) -> None:
        """Count how a requester was found, and how long that took."""
        self._identity_seconds.labels(how).observe(duration_s)

    def chosen(self, why: str) -> None:
        """Count a preferred allocation by its reason."""
        self._choices.labels(why).inc()

    def devices(self, resource: str, *, n_healthy: int, n_unhealthy: int) -> None:
        """Set the number of listed devices."""
        self._add_resource(resource)
        self._devices.labels(resource, "healthy").set(n_healthy)
        self._devices.labels(resource, "unhealthy").set(n_unhealthy)

    def registration_changed(self, change: RegistrationChange) -> None:
        """Record a change of a registration."""
        is_registered = change.phase is RegistrationPhase.REGISTERED
        self._registered.labels(change.resource).set(is_registered)
        if is_registered:
            self._registrations.labels(change.resource).inc()

    def written(self) -> None:
        """Count a write of the Node."""
        self._writes.inc()

    def write_failed(self, fault: WriteFailure) -> None:
        """Count a failed request to the API server."""
        self._failed_writes.labels(fault.reason.value).inc()

    def unpublished(self) -> None:
        """Count a report that no annotation can hold."""
        self._failed_writes.labels("report").inc()

    def gpu_event(self, event: GpuEvent, *, counts: bool) -> None:
        """Count an event of a GPU; the numbers of faults are in the log alone."""
        self._events.labels(event.kind.value, str(counts).lower()).inc()

    def reader_failed(self, what: str) -> None:
        """Count a failed read of the machine."""
        self._reader_failures.labels(what).inc()

    def kubelet_failed(self, what: str) -> None:
        """Count a failed request to the kubelet."""
        self._kubelet_failures.labels(what).inc()

    def differences(self, counts: Mapping[str, int]) -> None:
        """Set how many containers have other devices than planned, by kind."""
        for kind, count in counts.items():
            self._differences.labels(kind).set(count)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"coterie_plugin_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"coterie_plugin_{name}", text, labels, registry=self.registry)
