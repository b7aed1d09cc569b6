"""Metrics of a live extender: watches, probes, requeues and Events.

The counts are their owners', read when scraped. A metric's help says what it is good for;
docs/operations.md is generated from it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from extender.state import Agreement, Mismatch, Missing, NodeProblem, PlanConflict
from kube.client import certificate_end_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from prometheus_client.core import Metric

    from extender.execution import Requeuer
    from extender.observe.event_recorder import Reporter
    from extender.observe.group_metrics import GroupMetrics
    from extender.state import Effect
    from extender.watch import InformerSet, InjectedRequests, Prober
    from kube.watch import Counts

__all__ = ["EffectCounts", "LiveMetrics"]

_KINDS: dict[type, str] = {
    Mismatch: "mismatch",
    Agreement: "agreement",
    PlanConflict: "conflict",
    Missing: "missing",
    NodeProblem: "node_problem",
}


_WATCH_COUNTS: tuple[tuple[str, str, Callable[[Counts], int]], ...] = (
    (
        "watch_lists",
        "Complete lists; more than one per start means that a watch could not continue.",
        lambda counts: counts.n_lists,
    ),
    ("watch_events", "Changes seen.", lambda counts: counts.n_events),
    (
        "watch_faults",
        "Lists and watches that failed; the log says why.",
        lambda counts: counts.n_faults,
    ),
    (
        "watch_unread",
        "Objects that cannot be read; the log names each once.",
        lambda counts: counts.n_unread,
    ),
)
"""Counters of each watch, with their help."""


@dataclass(slots=True)
class EffectCounts:
    """Discrepancies that the live state reported, by kind."""

    by_kind: Counter[str] = field(default_factory=Counter[str])

    def add(self, effect: Effect) -> None:
        """Count one that is no probe."""
        self.by_kind[_KINDS[type(effect)]] += 1


@dataclass(frozen=True, slots=True)
class LiveMetrics:
    """The owners of the counts; `timer` is monotonic seconds, `unix_time` those since 1970.

    `certificates` are the files of the certificates that this extender shows, by whom to.
    """

    feed: InformerSet
    prober: Prober
    injected: InjectedRequests
    requeuer: Requeuer
    reporter: Reporter
    effects: EffectCounts
    timer: Callable[[], float]
    unix_time: Callable[[], float]
    certificates: Callable[[], Mapping[str, Path]]
    groups: GroupMetrics

    def collect(self) -> Iterable[Metric]:
        """The metrics now."""
        yield from self._watches()
        yield _counter(
            "probes",
            "Pods read in full, because they have GPUs and no plan.",
            "result",
            {"read": self.prober.n_read, "failed": self.prober.n_failed},
        )
        yield _gauge(
            "open_probes",
            "Pods that are still to be read in full; what they hold is not known meanwhile.",
            self.prober.n_open,
        )
        yield _gauge(
            "refused_probes",
            "Pods that the API server does not return, so that their GPUs may be planned for "
            "others: alert above 0. The log event object_unreadable names each and says why; they "
            "are retried each minute.",
            self.prober.n_refused,
        )
        yield _gauge(
            "unchecked_pods",
            "Pods without a plan whose metadata show no request for GPUs, and that are still to be "
            "read, since a webhook, a policy or a LimitRange may have added one. It falls to 0 "
            "minutes after the start; above, such pods are not counted yet.",
            self.injected.n_open,
        )
        yield _counter(
            "requeues",
            "Requeues of pods that fit again and that the scheduler had not retried: requeued (the "
            "retry annotation was written), skipped (the pod no longer waits, or another extender "
            "requeued it) or failed.",
            "result",
            {
                "requeued": self.requeuer.n_requeued,
                "skipped": self.requeuer.n_skipped,
                "failed": self.requeuer.n_failed,
            },
        )
        yield _counter(
            "events",
            "Events for users: written, dropped because there were too many, or failed at the API "
            "server.",
            "result",
            {
                "written": self.reporter.n_written,
                "dropped": self.reporter.n_dropped,
                "failed": self.reporter.n_failed,
            },
        )
        yield _counter(
            "discrepancies",
            "Differences between plan and reality: a pod that got other devices than planned (or "
            "has its plan again), plans that overlap, a pod that runs without the GPUs it "
            "requests, a node whose annotations or label cannot be used, or whose GPU model has no "
            "known worth.",
            "kind",
            {kind: self.effects.by_kind[kind] for kind in _KINDS.values()},
        )
        yield from self.groups.collect()
        yield self._certificate_ends()

    def _certificate_ends(self) -> Metric:
        ends = GaugeMetricFamily(
            _name("certificate_not_after_timestamp_seconds"),
            "End of the certificates that this extender shows, in seconds since 1970, as their "
            "files are now; 0 for one that cannot be read. Alert weeks before: from then on no pod "
            "with GPUs is placed.",
            labels=["certificate"],
        )
        for name, path in self.certificates().items():
            try:
                end_s = certificate_end_s(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError):
                end_s = None
            ends.add_metric([name], end_s or 0.0)
        return ends

    def _watches(self) -> Iterable[Metric]:
        start_s = self.unix_time() - self.timer()
        received = GaugeMetricFamily(
            _name("watch_last_heard_timestamp_seconds"),
            "Time of the last contact on a watch, in seconds since 1970; 0 until its first list is "
            "complete. Alert where it is older than staleness_bound_s: filter then answers with "
            "errors until the API server answers again. Of `pending_pods` only groups that wait "
            "need it.",
            labels=["source"],
        )
        watches = (*self.feed.watches, *self.feed.beside)
        for watch in watches:
            heard_s = watch.observed_at_s
            received.add_metric([watch.name], 0.0 if heard_s is None else start_s + heard_s)
        yield received
        for name, text, count in _WATCH_COUNTS:
            by_name = {one.name: count(one.counts) for one in watches}
            yield _counter(name, text, "source", by_name)


def _name(name: str) -> str:
    return f"coterie_extender_{name}"


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_name(name), text, value)


def _counter(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    counter = CounterMetricFamily(_name(name), text, labels=[label])
    for value, n in values.items():
        counter.add_metric([value], n)
    return counter
