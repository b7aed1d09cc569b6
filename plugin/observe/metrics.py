"""The metrics of a node: calls of the kubelet, devices, identities, writes.

Labels are resources of the node or closed sets, never a pod or a device; the series of closed sets
exist from the start, as `increase()` does not see one that appears at 1.

A metric's help says what it is good for; docs/plugin.md is generated from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from kube.metrics import program_registry
from plugin.allocation import AllocationBasis
from plugin.allocator import IdentifiedBy
from plugin.deviceplugin import CallOutcome, DevicePluginMethod
from plugin.machine import EventKind
from plugin.pods import MismatchKind
from plugin.publish import WriteFailureReason

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["PluginMetrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Around the goals of 10 ms, and of 30 ms where the kubelet is read, up to the deadline of 2 s."""


class PluginMetrics:
    """`registry` is what an exporter shows."""

    def __init__(self) -> None:
        self.registry = program_registry("coterie_plugin")
        self._resources: set[str] = set()
        self.call_seconds = Histogram(
            "coterie_plugin_call_duration_seconds",
            "Time from a call of the kubelet to the answer. The kubelet's sync loop waits for it: "
            "pods start that much later.",
            ["resource", "verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.calls = self._counter(
            "calls",
            "Calls of the kubelet. Each refused is a pod that failed for good; late and failed are "
            "faults.",
            "resource",
            "verb",
            "outcome",
        )
        self.identity_seconds = Histogram(
            "coterie_plugin_identity_lookup_duration_seconds",
            "Time to find the container that a call is for. By how: unreachable, or a large share "
            "of ambiguous, needs attention.",
            ["how"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.preferred_allocations = self._counter(
            "preferred_allocations",
            "Answers to GetPreferredAllocation. planned over all is the share of containers that "
            "were offered just what the extender planned.",
            "basis",
        )
        self.devices = self._gauge(
            "devices",
            "Devices of the node, as listed to the kubelet or, in reporter mode, as published. A "
            "rise of unhealthy is capacity that is lost.",
            "resource",
            "state",
        )
        self.registered = self._gauge(
            "registered", "1 while the kubelet watches the devices; 0: no pod gets one.", "resource"
        )
        self.registrations = self._counter(
            "registrations",
            "Times that the kubelet began to watch: one for each start of the kubelet or the "
            "plugin; more means that they lose each other.",
            "resource",
        )
        self.node_writes = self._counter(
            "node_writes", "Writes of the own Node that were accepted; none on an idle node."
        )
        self.node_write_failures = self._counter(
            "node_write_failures",
            "Requests to the API server that failed: until one succeeds the extender plans with "
            "what it knew.",
            "reason",
        )
        self.gpu_events = self._counter(
            "gpu_events",
            "Events of GPUs that the driver reported; the log names GPU and error number (XID).",
            "kind",
            "counts",
        )
        self.reader_failures = self._counter(
            "reader_failures",
            "Reads of the machine that failed, and machines that cannot be served as they are "
            "(inventory); the log event reader_failed says why.",
            "what",
        )
        self.accelerator_links = self._gauge(
            "accelerator_links",
            "Accelerator links (NVLinks) that are up, as the machine was read last: between GPUs, "
            "each once, and from GPUs into switches. A fall means links that went down, by which "
            "sets of GPUs are worth less.",
        )
        self.gpus_without_events = self._gauge(
            "gpus_without_events",
            "GPUs whose driver reports no errors as events: an error after which they still answer "
            "polls is not seen.",
        )
        self.restart_needed = self._gauge(
            "restart_needed",
            "1 while only a restart of the plugin may make GPUs usable again; after five minutes "
            "the plugin is restarted.",
        )
        self.kubelet_failures = self._counter(
            "kubelet_failures",
            "Requests to the kubelet that failed; the log event kubelet_unreachable says why.",
        )
        self.plan_mismatches = self._gauge(
            "plan_mismatches", "Containers whose devices are not as planned, now.", "kind"
        )
        for metric, labels in (
            (self.node_write_failures, [*(one.value for one in WriteFailureReason), "report"]),
            (self.reader_failures, ["wait", "faults", "read", "inventory"]),
            (self.plan_mismatches, [one.value for one in MismatchKind]),
        ):
            for label in labels:
                metric.labels(label)
        for kind in EventKind:
            for counts in ("true", "false"):
                self.gpu_events.labels(kind.value, counts)

    def follow(self, resources: Collection[str], *, is_serving: bool) -> None:
        """Make the series of a plugin with these resources, and remove those of other resources.

        One that serves nothing to the kubelet has no series about the kubelet's calls.
        """
        for gone in self._resources - set(resources):
            for metric in (
                *(self.call_seconds, self.calls),
                *(self.devices, self.registered, self.registrations),
            ):
                metric.remove_by_labels({"resource": gone})
        self._resources = set(resources)
        for resource in resources:
            for state in ("healthy", "unhealthy"):
                self.devices.labels(resource, state)
        if is_serving:
            for how in IdentifiedBy:
                self.identity_seconds.labels(how.value)
            for basis in (*(one.value for one in AllocationBasis), "refused"):
                self.preferred_allocations.labels(basis)
            for resource in resources:
                self._add_served(resource)

    def _add_served(self, resource: str) -> None:
        for verb in DevicePluginMethod:
            self.call_seconds.labels(resource, verb.value)
            for outcome in CallOutcome:
                self.calls.labels(resource, verb.value, outcome.value)
        self.registered.labels(resource)
        self.registrations.labels(resource)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"coterie_plugin_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"coterie_plugin_{name}", text, labels, registry=self.registry)
