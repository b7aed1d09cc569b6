"""How much the speed benchmark measures, and how it sums up what it measured.

Holds the sizes of a full run and of a smoke run, the loop that times are compared with, and the
percentiles of some times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FULL", "MACHINES", "QUICK", "Load", "percentiles", "reference_loop"]

MACHINES = ("dgx-1-v100", "8x-a6000-bridged", "dgx-a100", "dgx-h100")
"""Machine types of 8 GPUs that are measured and that the cluster under test is made of."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much is measured. `n_names` are the lengths of NodeNames, the longest first."""

    n_names: tuple[int, ...]
    n_pods: int
    n_requests: int
    n_builds: int
    n_selections: int
    n_fits: int
    n_draws: int


FULL = Load(
    n_names=(5000, 1000),
    n_pods=40_000,
    n_requests=3000,
    n_builds=30,
    n_selections=2000,
    n_fits=300,
    n_draws=600,
)
QUICK = Load(
    n_names=(200, 100), n_pods=800, n_requests=50, n_builds=3, n_selections=50, n_fits=10, n_draws=4
)


def reference_loop() -> float:
    """Seconds for 100,000 additions in Python: what this machine does at this moment."""
    start = time.perf_counter()
    total = 0
    for i in range(100_000):
        total += i
    return time.perf_counter() - start


def percentiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Median, 99th percentile and maximum, in milliseconds."""
    ordered = np.sort(np.asarray(seconds)) * 1000
    return float(np.median(ordered)), float(np.quantile(ordered, 0.99)), float(ordered[-1])
