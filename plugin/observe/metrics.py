"""What Prometheus can ask of a node: calls of the kubelet, devices, identities, writes.

What it answers: the registry behind `/metrics`. It is its own, so that two agents in one process
(tests) do not mix. Labels are closed sets or resources of the node: never a pod or a device.

docs/plugin.md says what each metric is good for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from plugin.deviceplugin import RegistrationPhase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.deviceplugin import DevicePluginCall, RegistrationChange
    from plugin.machine import GpuEvent
    from plugin.publish import WriteFailure

__all__ = ["Metrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Around the goals of 10 ms, and of 30 ms where the kubelet is asked, up to the deadline of 1 s."""


class Metrics:
    """Counts what happens; `registry` is what an exporter shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._call_seconds = Histogram(
            "coterie_plugin_call_seconds",
            "Time from a call of the kubelet's to our answer.",
            ["resource", "verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._calls = self._counter(
            "calls", "Calls of the kubelet's, by outcome.", "resource", "verb", "outcome"
        )
        self._identity_seconds = Histogram(
            "coterie_plugin_identity_seconds",
            "Time to find out for which container was asked, by how.",
            ["how"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._choices = self._counter("choices", "What was answered, by reason.", "why")
        self._devices = self._gauge("devices", "Devices that are served.", "resource", "state")
        self._registered = self._gauge(
            "registered", "1 while the kubelet watches the devices.", "resource"
        )
        self._registrations = self._counter(
            "registrations", "Times that the kubelet began to watch.", "resource"
        )
        self._writes = self._counter("node_writes", "Writes of the own Node that were accepted.")
        self._failed_writes = self._counter(
            "node_write_failures", "Requests to the API server that failed.", "trouble"
        )
        self._events = self._counter("gpu_events", "Events of GPUs.", "kind", "counts")
        self._reader_failures = self._counter(
            "reader_failures", "Questions to the machine that failed.", "what"
        )
        self._kubelet_failures = self._counter(
            "kubelet_failures", "Questions to the kubelet that failed.", "what"
        )
        self._differences = self._gauge(
            "differences", "Containers whose devices are not as planned, by kind.", "kind"
        )

    def answered(self, call: DevicePluginCall) -> None:
        """Take note of a call of the kubelet's."""
        verb = call.verb.value
        self._call_seconds.labels(call.resource, verb).observe(call.duration_s)
        self._calls.labels(call.resource, verb, call.outcome.value).inc()

    def identified(self, how: str, duration_s: float) -> None:
        """Take note of how it was found out who asks, and how long that took."""
        self._identity_seconds.labels(how).observe(duration_s)

    def chosen(self, why: str) -> None:
        """Take note of why these devices were answered."""
        self._choices.labels(why).inc()

    def devices(self, resource: str, *, n_healthy: int, n_unhealthy: int) -> None:
        """Take note of how many devices are listed."""
        self._devices.labels(resource, "healthy").set(n_healthy)
        self._devices.labels(resource, "unhealthy").set(n_unhealthy)

    def standing(self, change: RegistrationChange) -> None:
        """Take note of how a resource stands with the kubelet."""
        is_registered = change.phase is RegistrationPhase.REGISTERED
        self._registered.labels(change.resource).set(is_registered)
        if is_registered:
            self._registrations.labels(change.resource).inc()

    def written(self) -> None:
        """Take note of a write of the Node."""
        self._writes.inc()

    def write_failed(self, fault: WriteFailure) -> None:
        """Take note of a request to the API server that failed."""
        self._failed_writes.labels(fault.trouble.value).inc()

    def unpublished(self) -> None:
        """Take note of a report that no Node could carry."""
        self._failed_writes.labels("report").inc()

    def gpu_event(self, event: GpuEvent, *, counts: bool) -> None:
        """Take note of an event of a GPU; XIDs are not told apart: their numbers are in the log."""
        self._events.labels(event.kind.value, str(counts).lower()).inc()

    def reader_failed(self, what: str) -> None:
        """Take note of a question to the machine that failed."""
        self._reader_failures.labels(what).inc()

    def kubelet_failed(self, what: str) -> None:
        """Take note of a question to the kubelet that failed."""
        self._kubelet_failures.labels(what).inc()

    def differences(self, counts: Mapping[str, int]) -> None:
        """Take note of how many containers have other devices than planned, by kind."""
        for kind, count in counts.items():
            self._differences.labels(kind).set(count)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"coterie_plugin_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"coterie_plugin_{name}", text, labels, registry=self.registry)
