"""What Prometheus can ask of a live extender beside what every extender tells.

What it answers: the metrics of the watches, probes, wake-ups, Events and the Lease, read from their
owners when scraped. Nobody has to count anything for this alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from extender.state import Agreement, Conflict, Mismatch, Missing, NodeProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    from extender.execution import Waker
    from extender.ha import Replicas
    from extender.observe.event_recorder import Reporter
    from extender.state import Effect
    from extender.watch import Feed, Prober

__all__ = ["EffectCounts", "LiveMetrics"]

_KINDS: dict[type, str] = {
    Mismatch: "mismatch",
    Agreement: "agreement",
    Conflict: "conflict",
    Missing: "missing",
    NodeProblem: "node_problem",
}


@dataclass(slots=True)
class EffectCounts:
    """How often the live state told what."""

    by_kind: Counter[str] = field(default_factory=Counter[str])

    def add(self, effect: Effect) -> None:
        """Count one that is no probe."""
        self.by_kind[_KINDS[type(effect)]] += 1


@dataclass(frozen=True, slots=True)
class LiveMetrics:
    """The owners of what is told; `timer` is monotonic."""

    feed: Feed
    prober: Prober
    waker: Waker
    reporter: Reporter
    effects: EffectCounts
    timer: Callable[[], float]
    replicas: Replicas | None

    def collect(self) -> Iterable[Metric]:
        """What there is to tell now."""
        yield from self._watches()
        probes = _counter("probes", "Pods read in full, by result.", "result")
        probes.add_metric(["read"], self.prober.n_read)
        probes.add_metric(["failed"], self.prober.n_failed)
        yield probes
        yield GaugeMetricFamily(
            _name("open_probes"), "Pods that are still to be read in full.", self.prober.n_open
        )
        yield GaugeMetricFamily(
            _name("refused_probes"),
            "Pods that cannot be read in full; their devices count as free.",
            self.prober.n_refused,
        )
        wakes = _counter("wakes", "Parked pods to wake, by what became of it.", "result")
        wakes.add_metric(["woken"], self.waker.n_woken)
        wakes.add_metric(["in_vain"], self.waker.n_in_vain)
        wakes.add_metric(["failed"], self.waker.n_failed)
        yield wakes
        events = _counter("events", "Events for users, by what became of them.", "result")
        events.add_metric(["written"], self.reporter.n_written)
        events.add_metric(["dropped"], self.reporter.n_dropped)
        events.add_metric(["failed"], self.reporter.n_failed)
        yield events
        told = _counter("told", "What did not go as planned, by kind.", "kind")
        for kind in _KINDS.values():
            told.add_metric([kind], self.effects.by_kind[kind])
        yield told
        if self.replicas is not None:
            yield from self._lease(self.replicas)

    def _watches(self) -> Iterable[Metric]:
        now_s = self.timer()
        age = GaugeMetricFamily(
            _name("watch_age_seconds"),
            "Time since the API server was last heard on a watch.",
            labels=["source"],
        )
        counters = {
            "n_lists": _counter("watch_lists", "Complete lists.", "source"),
            "n_events": _counter("watch_events", "Changes.", "source"),
            "n_faults": _counter("watch_faults", "Lists and watches that failed.", "source"),
            "n_unread": _counter("watch_unread", "Objects that cannot be read.", "source"),
        }
        for watch in self.feed.watches:
            if watch.observed_at_s is not None:
                age.add_metric([watch.name], now_s - watch.observed_at_s)
            for attribute, counter in counters.items():
                counter.add_metric([watch.name], getattr(watch.counts, attribute))
        yield age
        yield from counters.values()

    def _lease(self, replicas: Replicas) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            _name("may_bind"), "1 on the replica that binds, else 0.", int(replicas.may_bind)
        )
        taken = CounterMetricFamily(_name("lease_taken"), "Times this replica took the Lease over.")
        taken.add_metric([], replicas.n_taken)
        yield taken
        faults = CounterMetricFamily(_name("lease_faults"), "Looks at the Lease that failed.")
        faults.add_metric([], replicas.n_faults)
        yield faults


def _name(name: str) -> str:
    return f"coterie_extender_{name}"


def _counter(name: str, text: str, label: str) -> CounterMetricFamily:
    return CounterMetricFamily(_name(name), text, labels=[label])
