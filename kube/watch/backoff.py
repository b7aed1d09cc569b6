"""How long to wait before the next attempt.

Returns a delay that doubles with each failure up to a cap, with jitter, so that many clients that
lost the same server do not reconnect at the same time. It never waits itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Counts failures in a row. `jitter` gives numbers in [0, 1).

    >>> backoff = Backoff(first_s=0.1, cap_s=1.0, jitter=lambda: 0.0)
    >>> [backoff.next_s() for _ in range(5)]
    [0.05, 0.1, 0.2, 0.4, 0.5]
    """

    def __init__(self, *, first_s: float, cap_s: float, jitter: Callable[[], float]) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._jitter = jitter
        self.n_failures = 0

    def next_s(self, *, retry_after_s: float | None = None) -> float:
        """The next delay: half of it fixed, half jitter.

        Where the server itself requested a delay (`retry_after_s`), that is used, with jitter of up
        to half as much again: the server knows better than the doubling when it will be back.
        """
        # 30 doublings of any delay are above any cap; more would overflow after days of failures.
        full_s = min(self._first_s * (1 << min(self.n_failures, 30)), self._cap_s)
        self.n_failures += 1
        if retry_after_s is not None:
            return retry_after_s * (1 + self._jitter() / 2)
        return full_s * (1 + self._jitter()) / 2

    def reset(self) -> None:
        """Start from the first delay again, after a success."""
        self.n_failures = 0
