"""Delays between tries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube.watch import Backoff

DRAWS = st.floats(0, 1, exclude_max=True)


@given(DRAWS, st.integers(0, 10_000))
def test_a_delay_stays_within_its_bounds(draw, n_failures):
    """Half of the doubled delay at least, never above the cap, after days of failures too."""
    backoff = Backoff(first_s=0.1, cap_s=5.0, jitter=lambda: draw)
    backoff.n_failures = n_failures
    full_s = min(0.1 * 2 ** min(n_failures, 50), 5.0)
    assert full_s / 2 <= backoff.next_s() <= full_s


def test_success_resets_the_delay():
    """One good answer, and the next failure is tried again at once."""
    backoff = Backoff(first_s=0.1, cap_s=5.0, jitter=lambda: 0.0)
    delays = [backoff.next_s() for _ in range(3)]
    backoff.reset()
    assert (delays, backoff.next_s()) == ([0.05, 0.1, 0.2], 0.05)


def test_a_delay_that_the_server_names_is_not_doubled():
    """Else a server that is back after 15 s would be found after 30."""
    backoff = Backoff(first_s=0.1, cap_s=5.0, jitter=lambda: 0.5)
    assert [backoff.next_s(retry_after_s=1.0) for _ in range(9)] == [1.25] * 9
    assert backoff.n_failures == 9
