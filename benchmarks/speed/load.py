"""How much the speed benchmarks measure, and how they sum up what they measured."""

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
    """How much is measured.

    `n_names` are the lengths of NodeNames, the longest first; `n_turns` and `n_beside` the turns of
    the blocks beside a reader and the pods of each.
    """

    n_names: tuple[int, ...]
    n_pods: int
    n_requests: int
    n_builds: int
    n_selections: int
    n_turns: int
    n_beside: int


FULL = Load(
    n_names=(5000, 1000),
    n_pods=40_000,
    n_requests=3000,
    n_builds=30,
    n_selections=2000,
    n_turns=5,
    n_beside=800,
)
QUICK = Load(
    n_names=(200, 100),
    n_pods=800,
    n_requests=50,
    n_builds=3,
    n_selections=50,
    n_turns=1,
    n_beside=40,
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
