"""How long to wait before the next try.

What it answers: a delay that doubles with each failure up to a cap, and is spread, so that
many clients that lost the same server do not come back in the same instant. It never waits itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Counts failures in a row. `draw` gives numbers in [0, 1).

    >>> backoff = Backoff(first_s=0.1, cap_s=1.0, draw=lambda: 0.0)
    >>> [backoff.next_s() for _ in range(5)]
    [0.05, 0.1, 0.2, 0.4, 0.5]
    """

    def __init__(self, *, first_s: float, cap_s: float, draw: Callable[[], float]) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._draw = draw
        self.n_failures = 0

    def next_s(self, *, asked_s: float | None = None) -> float:
        """The next delay: half of it fixed, half drawn.

        A server that says itself when to come back (`asked_s`) is taken at its word, and spread up
        to half as much again: it knows better than a doubling that would pass over its return.
        """
        # 30 doublings of any delay are above any cap; more would overflow after days of failures.
        full_s = min(self._first_s * (1 << min(self.n_failures, 30)), self._cap_s)
        self.n_failures += 1
        if asked_s is not None:
            return asked_s * (1 + self._draw() / 2)
        return full_s * (1 + self._draw()) / 2

    def reset(self) -> None:
        """Something worked."""
        self.n_failures = 0
