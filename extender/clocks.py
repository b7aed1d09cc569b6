"""The engine's time: Unix seconds that never jump.

The time, as the wall clock showed at the start plus what a monotonic clock
has counted since. Deadlines and freshness are differences of such times, so that setting the
machine's clock neither ends assumptions early nor makes old state look fresh.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SteadyClock"]


class SteadyClock:
    """Seconds since boot; suspend counts where the system supports it."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._offset_s = wall() - monotonic()

    def __call__(self) -> float:
        """The time now."""
        return self.at(self._monotonic())

    def at(self, monotonic_s: float) -> float:
        """The time of a reading of the monotonic clock."""
        return self._offset_s + monotonic_s
