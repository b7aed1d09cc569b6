"""Speed: tables, selections, and the extender over HTTP.

Measures how long a machine's tables take to build, how long a selection takes that is not cached,
how long the longest rating on a machine of more than 16 devices is, and how long filter and
prioritize take over one keep-alive connection with 5,000 and 1,000 node names, beside the resident
memory of the process. Ratios are to work done in the same run: a fixed Python loop for the core, a
FastAPI server that echoes its body for HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.speed.core import measure_core
from benchmarks.speed.http import measure_http
from benchmarks.speed.large import measure_large
from benchmarks.speed.load import FULL, QUICK, Load

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.report import ResultTable

__all__ = ["FULL", "QUICK", "run"]


def run(
    load: Load = FULL, *, seed: int = 0, advance: Callable[[], None] = lambda: None
) -> tuple[ResultTable, ...]:
    """Measure the core, one rating on large machines, then the server."""
    core = measure_core(load, seed)
    advance()
    large = measure_large(load, seed)
    advance()
    return core, large, *measure_http(load, seed, advance)
