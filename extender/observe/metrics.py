"""Metrics of every extender: latencies, outcomes, device states, what was placed and what can be.

Labels are closed sets, made at the start so that a first event shows as a rise, or bounded by the
kinds of machine in the cluster: never a pod, a node or a device.

A metric's help says what it is good for; docs/operations.md is generated from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from extender.observe.near_best_sets import NearBestSets
from extender.protocol import Outcome, Reason, Verb
from extender.state import DeviceState
from kube.metrics import program_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from extender.engine import Engine
    from extender.protocol import Answer

__all__ = ["ExtenderMetrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Around the goal of 5 ms for 5,000 nodes, up to kube-scheduler's default httpTimeout of 5 s."""
_GBYTE = 1_000_000_000
_BYTES_PER_S = tuple(n * _GBYTE for n in (5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 400, 600))
"""From staged PCIe to eight GPUs on NVLink 5."""
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1.0)
"""1 less the default bounds of the classes of loss, 2, 10 and 30 %, and what lies below."""
_WAITS = (1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 86_400.0)
"""From one retry of kube-scheduler to a day."""
MAX_MACHINES = 32
"""Machine names that get a label of their own; the others are `other`. Names come from what nodes
publish, and a metric's labels must stay few whatever they publish."""
MAX_SIZE = 16
"""Largest number of GPUs that gets a label of its own."""


_OF_NODES = tuple(Reason)[: list(Reason).index(Reason.INVALID_REQUEST) + 1]
"""Reasons that refuse a pod; the others say why a call failed."""
_FAULTS = (Reason.MALFORMED, Reason.TOO_LARGE, Reason.STALE, Reason.INVALID_REQUEST)
_FAILURES: dict[Verb, tuple[Reason, ...]] = {
    Verb.FILTER: _FAULTS,
    Verb.PRIORITIZE: _FAULTS,
    Verb.EXPLAIN: _FAULTS,
    Verb.BIND: tuple(Reason),
    Verb.PREEMPT: (*_FAULTS, Reason.NODES_NOT_READ),
}


def _answers() -> Iterator[tuple[Verb, Outcome, Reason | None]]:
    """The answers whose series exist from the start: `increase()` misses one that begins at 1."""
    for verb, faults in _FAILURES.items():
        yield verb, Outcome.OK, None
        for reason in faults:
            yield verb, Outcome.FAILED, reason
    for reason in _OF_NODES:
        yield Verb.FILTER, Outcome.REFUSED, reason


class ExtenderMetrics:
    """Counts answers; reads sizes from the engine when scraped. `registry` is what is shown."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.registry = program_registry("coterie_extender")
        self._seconds = Histogram(
            "coterie_extender_request_duration_seconds",
            "Time from the whole body read to the response ready. Filter and prioritize run inside "
            "the serial scheduling cycle: their sum bounds pods per second.",
            ["verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._bind_own_seconds = Histogram(
            "coterie_extender_bind_own_duration_seconds",
            "Time of binds here that Coterie computed: without the API server, and without the "
            "wait for earlier binds to a node with a Topology Manager policy.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._answers = self._counter(
            "answers",
            "Answers. A rise of failed is a fault; of refused, a full or unsuitable cluster: the "
            "reason says which.",
            "verb",
            "outcome",
            "reason",
        )
        self._placed = Histogram(
            "coterie_extender_placed_bandwidth_bytes_per_second",
            "Predicted all-reduce bus bandwidth of the sets that were bound (two GPUs or more).",
            ["machine", "size"],
            buckets=_BYTES_PER_S,
            registry=self.registry,
        )
        self._efficiency = Histogram(
            "coterie_extender_placed_efficiency_ratio",
            "Predicted bandwidth of the sets that were bound, by the best set of that size on the "
            "empty machine, of the container that loses most (two GPUs or more). Low values mean "
            "that good sets are taken when pods arrive.",
            ["machine", "size"],
            buckets=_SHARES,
            registry=self.registry,
        )
        self._waits = Histogram(
            "coterie_extender_pending_duration_seconds",
            "Time from a pod's first rejection by filter until filter names a node for it, by the "
            "reason of its last rejection.",
            ["reason"],
            buckets=_WAITS,
            registry=self.registry,
        )
        self._replans = self._counter(
            "replans",
            "Plans that binds made beyond their first. A rise means that pods, nodes or devices "
            "change while pods are bound.",
        )
        self._ready = self._gauge(
            "ready",
            "1 while /readyz answers ok, else 0. Alert where the max over extenders is 0: every "
            "pod with GPUs then waits.",
        )
        self._deferred = self._counter(
            "deferred_ratings",
            "Node states that filter and prioritize ranked by count for lack of time. A rise means "
            "many new kinds of nodes or of pods; where it lasts, `rating_budget_s` is too short.",
        )
        self._devices = self._gauge(
            "devices",
            "Devices by state. A rise of the unhealthy states is capacity that is lost or will be.",
            "state",
        )
        self._unavailable = self._gauge(
            "unavailable_devices",
            "Devices that are free on nodes that take no new pod: cordoned, not ready, unreachable "
            "or under pressure. `coterie_extender_devices` counts them as free.",
        )
        self._pods = self._gauge(
            "pods_with_devices",
            "Pods that have devices; should match the GPU pods that run.",
        )
        self._unschedulable = self._gauge(
            "unschedulable_pods",
            "Pods that filter rejected and that wait for Coterie alone. Autoscalers do not see "
            "extenders, so they add no nodes for these.",
            "reason",
        )
        self._longest_wait = self._gauge(
            "longest_pending_seconds",
            "Time since the first rejection of the pod that has waited longest, by the reason of "
            "its last; 0 where none waits. A pod that no filter call names for 15 minutes counts "
            "as gone, as where kube-scheduler itself finds no node for it.",
            "reason",
        )
        self._nodes = self._gauge(
            "snapshot_nodes", "Nodes known; should match the GPU nodes of the cluster."
        )
        self._ratings = self._gauge(
            "remembered_ratings",
            "Node states rated for pod shapes and remembered; grows with the variety of states, "
            "not with the cluster.",
        )
        self._machines: set[str] = set()
        self._near_best = NearBestSets(engine.cluster, engine.rules.resources)
        self.add_source(self._capacity)
        for reason in _OF_NODES:
            self._waits.labels(reason.label)
        self._series: dict[tuple[Verb, Outcome, Reason | None], tuple[Histogram, Counter]] = {}
        for kind in _answers():
            self._series_of(*kind)

    def observe(self, answer: Answer, seconds: float) -> None:
        """Count one answer."""
        kind = answer.verb, answer.outcome, answer.reason
        times, n_answers = self._series.get(kind) or self._series_of(*kind)
        times.observe(seconds)
        n_answers.inc()
        if answer.n_deferred:
            self._deferred.inc(answer.n_deferred)
        if answer.n_replans:
            self._replans.inc(answer.n_replans)
        if answer.placed_gbytes_per_s and answer.outcome is Outcome.OK:
            labels = self._machine(answer.machine), _size(answer.size_gpus)
            self._placed.labels(*labels).observe(answer.placed_gbytes_per_s * _GBYTE)
            if answer.placed_efficiency is not None:
                self._efficiency.labels(*labels).observe(answer.placed_efficiency)
        if answer.verb is Verb.BIND and answer.own_s is not None:
            self._bind_own_seconds.observe(answer.own_s)
        if answer.waited_s is not None and answer.waited_for is not None:
            self._waits.labels(answer.waited_for.label).observe(answer.waited_s)

    def add_source(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Add a source: what `collect` returns is scraped too."""
        self.registry.register(_Source(collect))

    def render(self, *, is_ready: bool, now_s: float) -> bytes:
        """The exposition text (format 0.0.4).

        `is_ready` as the probes are answered, `now_s` by the clock that the verbs are called with.
        """
        self._ready.set(is_ready)
        cluster = self._engine.cluster
        counts = cluster.counts()
        for state in DeviceState:
            self._devices.labels(state.value).set(counts.get(state, 0))
        self._unavailable.set(cluster.moment().n_unavailable)
        pending = self._engine.pending
        counts_by_reason, first_s = pending.counts(), pending.first_rejected_s()
        for reason in {*_OF_NODES, *counts_by_reason}:
            self._unschedulable.labels(reason.label).set(counts_by_reason.get(reason, 0))
            self._longest_wait.labels(reason.label).set(now_s - first_s.get(reason, now_s))
        self._pods.set(cluster.n_owners)
        self._nodes.set(len(cluster.snapshot.nodes))
        self._ratings.set(self._engine.n_ratings)
        return generate_latest(self.registry)

    def _series_of(
        self, verb: Verb, outcome: Outcome, reason: Reason | None
    ) -> tuple[Histogram, Counter]:
        """Make the series of an answer, and keep them: labels are made text of."""
        label = reason.label if reason else ""
        count = self._answers.labels(verb.value, outcome.value, label)
        series = self._series[verb, outcome, reason] = self._seconds.labels(verb.value), count
        return series

    def _capacity(self) -> Iterable[Metric]:
        placeable = GaugeMetricFamily(
            "coterie_extender_placeable_sets",
            "Sets of that size that free GPUs hold side by side and that come within 10 % of the "
            "best of the empty machine: so many pods of the size can still be placed as well.",
            labels=["machine", "size"],
        )
        stranded = GaugeMetricFamily(
            "coterie_extender_stranded_devices",
            "Free GPUs of nodes that hold no such set of that size any more: free, and of little "
            "use to a pod of the size. A high share of the free and available GPUs means "
            "fragmentation.",
            labels=["machine", "size"],
        )
        totals: dict[tuple[str, str], tuple[int, int]] = {}
        for (machine, size), (n_sets, n_stranded) in self._near_best.count().items():
            labels = self._machine(machine), str(size)
            before = totals.get(labels, (0, 0))
            totals[labels] = before[0] + n_sets, before[1] + n_stranded
        for labels, (n_sets, n_stranded) in totals.items():
            placeable.add_metric(labels, n_sets)
            stranded.add_metric(labels, n_stranded)
        yield placeable
        yield stranded

    def _machine(self, name: str) -> str:
        if name not in self._machines:
            if len(self._machines) >= MAX_MACHINES:
                return "other"
            self._machines.add(name)
        return name

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"coterie_extender_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"coterie_extender_{name}", text, labels, registry=self.registry)


class _Source:
    """A collector for the registry."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self.collect = collect


def _size(size_gpus: int) -> str:
    return str(size_gpus) if size_gpus <= MAX_SIZE else f"over_{MAX_SIZE}"
