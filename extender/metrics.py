"""What Prometheus can ask: latencies, outcomes, the ledger's sizes, bandwidth placed.

What it answers: the text of `/metrics`. Its registry is its own, so that two servers in one process
(tests) do not mix. Labels are closed sets: never a pod, a node or a device.

docs/operations.md says what each metric is good for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from extender.engine import Verb

if TYPE_CHECKING:
    from extender.engine import Answer, Engine

__all__ = ["Metrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Around the goal of 5 ms for 5,000 nodes, up to kube-scheduler's default httpTimeout of 5 s."""
_GBYTES_PER_S = (5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 400, 600)
"""From staged PCIe to eight GPUs on NVLink 5."""


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
        self._answers = Counter(
            "coterie_extender_answers",
            "Answers by verb, outcome and reason.",
            ["verb", "outcome", "reason"],
            registry=self._registry,
        )
        self._placed = Histogram(
            "coterie_extender_placed_gbytes_per_second",
            "Predicted all-reduce bus bandwidth of the sets that were bound (two GPUs or more).",
            buckets=_GBYTES_PER_S,
            registry=self._registry,
        )
        self._devices = Gauge(
            "coterie_extender_ledger_devices",
            "Devices in the ledger by state.",
            ["state"],
            registry=self._registry,
        )
        self._pods = Gauge(
            "coterie_extender_ledger_pods",
            "Pods that have devices in the ledger.",
            registry=self._registry,
        )
        self._nodes = Gauge(
            "coterie_extender_snapshot_nodes",
            "Nodes in the snapshot.",
            registry=self._registry,
        )
        self._ratings = Gauge(
            "coterie_extender_remembered_ratings",
            "Node states rated for pod shapes and remembered.",
            registry=self._registry,
        )
        self._by_verb = {verb: self._seconds.labels(verb.value) for verb in Verb}

    def observe(self, answer: Answer, seconds: float) -> None:
        """Count one answer."""
        reason = answer.reason.label if answer.reason else ""
        self._by_verb[answer.verb].observe(seconds)
        self._answers.labels(answer.verb.value, answer.outcome.value, reason).inc()
        if answer.placed_gbytes_per_s:
            self._placed.observe(answer.placed_gbytes_per_s)

    def render(self) -> bytes:
        """The exposition text (format 0.0.4)."""
        cluster = self._engine.cluster
        for state, n_devices in cluster.counts().items():
            self._devices.labels(state.value).set(n_devices)
        self._pods.set(cluster.ledger.n_pods)
        self._nodes.set(len(cluster.snapshot.nodes))
        self._ratings.set(self._engine.n_ratings)
        return generate_latest(self._registry)
