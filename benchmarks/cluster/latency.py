"""How long the verbs took, from the extender's own histograms.

Computes p50, p99 and the highest bucket reached, by verb, over all rounds together. A quantile lies
inside a bucket and is interpolated in it, as Prometheus does (histogram_quantile).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.report import ResultTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.report import Cell

__all__ = ["VerbTimes", "quantile"]

FAMILIES = {
    "coterie_extender_request_duration_seconds": "{verb}",
    "coterie_extender_bind_own_duration_seconds": "bind without the API server",
}


class VerbTimes:
    """Buckets of several processes, added up."""

    def __init__(self) -> None:
        self._buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, text: str) -> None:
        """Add the metrics of one process, in Prometheus' text format."""
        for family in text_string_to_metric_families(text):
            if family.name in FAMILIES:
                for sample in family.samples:
                    if sample.name.endswith("_bucket"):
                        what = FAMILIES[family.name].format(**sample.labels)
                        self._buckets[what][float(sample.labels["le"])] += sample.value

    def table(self, title: str) -> ResultTable:
        """Show what was seen."""
        rows: list[tuple[Cell, ...]] = []
        for what, buckets in sorted(self._buckets.items()):
            n_calls = buckets[float("inf")]
            if n_calls:
                rows.append(
                    (
                        what,
                        int(n_calls),
                        *(1000 * quantile(buckets, share) for share in (0.5, 0.99)),
                        1000 * min(le for le, n in buckets.items() if n == n_calls),
                    )
                )
        notes = ("from the extender's own histograms; quantiles are interpolated in their bucket",)
        columns = ("verb", "calls", "p50 ms", "p99 ms", "all below ms")
        return ResultTable(title, columns, tuple(rows), notes, digits=2)


def quantile(buckets: Mapping[float, float], share: float) -> float:
    """Quantile of cumulative buckets by upper bound, the last of which is infinite.

    A quantile in the last bucket is its lower bound, the most that is known.

    >>> quantile({0.1: 5, 0.2: 10, float("inf"): 10}, 0.75)
    0.15
    """
    bounds = sorted(buckets)
    rank = share * buckets[bounds[-1]]
    low, below = 0.0, 0.0
    for bound in bounds[:-1]:
        if buckets[bound] >= rank:
            inside = (rank - below) / (buckets[bound] - below)
            return round(low + (bound - low) * inside, 9)
        low, below = bound, buckets[bound]
    return low
