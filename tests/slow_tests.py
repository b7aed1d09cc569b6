"""A test over a second carries `@pytest.mark.slow("reason")`; without the mark it fails.

The result must not depend on how busy the machine is. So the cost of a test is the larger of two
lower bounds: the processor time of this process and of the children that it awaited, and the
elapsed time without the time in which anything on the machine waited for a processor or a disk
(Linux's pressure stall information; where that is missing, only processor time counts), or the
machine itself for a processor of its host. So a test's own waits for a disk are not judged. A cost
over the limit is compared with the machine's speed at that moment. Fixtures are not judged.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["Stopwatch", "excess", "reason_of"]

LIMIT_S = 1.0
MARGIN = 2.0
"""By this factor the times of a test differ between runs on the same machine."""
TRACED = 2.0
"""By this factor tracing (coverage, a debugger) slows tests down."""
LOOP_S = 0.006
"""What the calibration loop takes on an idle processor of 2023."""
PRESSURE = Path("/proc/pressure")
STAT = Path("/proc/stat")
STEAL = 8
"""The field of its first line: ticks that the host gave to others, a sum over all processors."""
_monotonic = time.monotonic
"""The clock itself: a test may have put another in its place, which it takes back afterwards."""
EXEMPT = ("cluster", "shared")
"""Marks that say the same of a whole tier."""


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Readings at the start of a test."""

    wall_s: float
    processor_s: float
    stalled_s: float | None
    """How long anything waited since boot, see above; none where the kernel does not say."""

    @classmethod
    def start(cls) -> Stopwatch:
        """Read the clocks."""
        used = os.times()
        return cls(
            wall_s=_monotonic(),
            processor_s=sum(used[:4]),
            stalled_s=_stalled_s(),
        )

    def cost_s(self, end: Stopwatch) -> float:
        """At least this long a test between these readings would take on an idle machine."""
        processor_s = end.processor_s - self.processor_s
        if self.stalled_s is None or end.stalled_s is None:
            return processor_s
        stalled_s = end.stalled_s - self.stalled_s
        return max(processor_s, end.wall_s - self.wall_s - stalled_s)


def reason_of(item: pytest.Item) -> str | None:
    """Why a test may be slow; none where it may not. A mark without a reason is an error."""
    for mark in item.iter_markers("slow"):
        match mark.args:
            case (str(reason),) if reason:
                return reason
            case _:
                msg = f'{item.nodeid}: expected @pytest.mark.slow("reason")'
                raise pytest.UsageError(msg)
    return next((name for name in EXEMPT if item.get_closest_marker(name)), None)


def excess(begun: Stopwatch, slowness: float | None = None) -> str | None:
    """What is wrong with a test that began then and ends now; none where it is quick enough."""
    cost_s = begun.cost_s(Stopwatch.start())
    if cost_s <= LIMIT_S * MARGIN:
        return None
    allowed_s = LIMIT_S * MARGIN * (machine_slowness() if slowness is None else slowness)
    if sys.gettrace() is not None:
        allowed_s *= TRACED
    if cost_s <= allowed_s:
        return None
    return (
        f"took {cost_s:.1f} s, expected at most {LIMIT_S:g} s ({allowed_s:.1f} s on this machine "
        'now): make it quicker, or mark it with @pytest.mark.slow("reason"); '
        "COTERIE_SLOW_TESTS=allow turns this check off"
    )


def machine_slowness() -> float:
    """How much slower a processor is now than the reference; at least 1."""
    slowest_s = 0.0
    for _ in range(3):
        begun_s = time.process_time()
        sum(number * number % 7 for number in range(100_000))
        slowest_s = max(slowest_s, time.process_time() - begun_s)
    return max(slowest_s / LOOP_S, 1.0)


def _stalled_s() -> float | None:
    try:
        waited = [
            (PRESSURE / what).read_text(encoding="ascii").splitlines()[0] for what in ("cpu", "io")
        ]
        fields = STAT.read_text(encoding="ascii").splitlines()[0].split()
    except (OSError, IndexError):
        return None
    stolen_s = int(fields[STEAL]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    return sum(int(line.rpartition("total=")[2]) for line in waited) / 1e6 + stolen_s
