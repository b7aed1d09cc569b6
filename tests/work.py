"""Work as a number of calls of functions, Python's and C's: the same on every machine.

What one call does inside C is not seen: a test of it bounds what is given to that call.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["CALL_S", "Calls", "Turns"]

CALL_S = 1e-6
"""What a call takes by the clock of `Turns`; more than it takes on most machines."""


class Calls:
    """Counts the calls of this thread in a `counting` block."""

    def __init__(self) -> None:
        self.n = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count."""
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _see(self, _frame: FrameType, event: str, _arg: object) -> None:
        if event in {"call", "c_call"}:
            self.n += 1


class Turns(Calls):
    """Counts the calls of each turn of an event loop, whose end it is told by `end`.

    In the block `time.perf_counter` shows the calls so far, so that what takes turns by it takes
    the same ones on every machine.
    """

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0
        self._begun_n = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count, and replace the clock."""
        with mock.patch.object(time, "perf_counter", self._now), super().counting():
            yield

    def _now(self) -> float:
        return self.n * CALL_S

    def end(self) -> None:
        """A turn has ended."""
        self.longest = max(self.longest, self.n - self._begun_n)
        self._begun_n = self.n
