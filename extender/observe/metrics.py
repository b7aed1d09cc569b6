"""What Prometheus can ask: latencies, outcomes, the ledger's sizes, bandwidth placed, the watches.

What it answers: the text of `/metrics`. Its registry is its own, so that two servers in one process
(tests) do not mix. Labels are closed sets, or bounded by the kinds of machine in the cluster: never
a pod, a node or a device.

docs/operations.md says what each metric is good for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from extender.protocol import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    from extender.engine import Engine
    from extender.protocol import Answer, Reason, Verb

__all__ = ["Metrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Around the goal of 5 ms for 5,000 nodes, up to kube-scheduler's default httpTimeout of 5 s."""
_GBYTES_PER_S = (5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 400, 600)
"""From staged PCIe to eight GPUs on NVLink 5."""
MAX_MACHINES = 32
"""Machine names that get a label of their own; the others are `other`. Names come from what nodes
publish, and a metric's labels must stay few whatever they publish."""
MAX_SIZE = 16
"""Largest number of GPUs that gets a label of its own."""


class Metrics:
    """Counts answers; reads sizes from the engine when scraped."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "coterie_extender_request_seconds",
            "Time from the whole body read to the answer made, by verb.",
            ["verb"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._bind_own_seconds = Histogram(
            "coterie_extender_bind_own_seconds",
            "Time of binds without what the API server took.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._answers = self._counter(
            "answers",
            "Answers by verb, outcome and reason.",
            "verb",
            "outcome",
            "reason",
        )
        self._placed = Histogram(
            "coterie_extender_placed_gbytes_per_second",
            "Predicted all-reduce bus bandwidth of the sets that were bound (two GPUs or more).",
            ["machine", "size"],
            buckets=_GBYTES_PER_S,
            registry=self._registry,
        )
        self._replans = self._counter("replans", "Plans that binds made beyond their first.")
        self._devices = self._gauge("ledger_devices", "Devices in the ledger by state.", "state")
        self._pods = self._gauge("ledger_pods", "Pods that have devices in the ledger.")
        self._parked = self._gauge(
            "parked_pods", "Pods that filter rejected and that wait, by reason.", "reason"
        )
        self._nodes = self._gauge("snapshot_nodes", "Nodes in the snapshot.")
        self._ratings = self._gauge(
            "remembered_ratings", "Node states rated for pod shapes and remembered."
        )
        self._machines: set[str] = set()
        self._series: dict[tuple[Verb, Outcome, Reason | None], tuple[Histogram, Counter]] = {}
        ProcessCollector(registry=self._registry)

    def observe(self, answer: Answer, seconds: float) -> None:
        """Count one answer."""
        times, n_answers = self._of(answer)
        times.observe(seconds)
        n_answers.inc()
        if answer.n_replans:
            self._replans.inc(answer.n_replans)
        if answer.placed_gbytes_per_s and answer.outcome is Outcome.OK:
            labels = self._machine(answer.machine), _size(answer.size_gpus)
            self._placed.labels(*labels).observe(answer.placed_gbytes_per_s)

    def observe_bind(self, own_s: float) -> None:
        """Note the part of a bind's time that was ours."""
        self._bind_own_seconds.observe(own_s)

    def add_source(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Have what `collect` returns scraped too."""
        self._registry.register(_Source(collect))

    def render(self) -> bytes:
        """The exposition text (format 0.0.4)."""
        cluster = self._engine.cluster
        for state, n_devices in cluster.counts().items():
            self._devices.labels(state.value).set(n_devices)
        self._parked.clear()
        for reason, n_pods in self._engine.parked.counts().items():
            self._parked.labels(reason.label).set(n_pods)
        self._pods.set(cluster.n_owners)
        self._nodes.set(len(cluster.snapshot.nodes))
        self._ratings.set(self._engine.n_ratings)
        return generate_latest(self._registry)

    def _of(self, answer: Answer) -> tuple[Histogram, Counter]:
        """The series that an answer counts in, kept: their look-up makes text of each label."""
        kind = answer.verb, answer.outcome, answer.reason
        series = self._series.get(kind)
        if series is None:
            verb, reason = answer.verb.value, answer.reason.label if answer.reason else ""
            count = self._answers.labels(verb, answer.outcome.value, reason)
            series = self._series[kind] = self._seconds.labels(verb), count
        return series

    def _machine(self, name: str) -> str:
        if name not in self._machines:
            if len(self._machines) >= MAX_MACHINES:
                return "other"
            self._machines.add(name)
        return name

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"coterie_extender_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"coterie_extender_{name}", text, labels, registry=self._registry)


class _Source:
    """A collector for the registry."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self.collect = collect


def _size(size_gpus: int) -> str:
    return str(size_gpus) if size_gpus <= MAX_SIZE else f"over_{MAX_SIZE}"
