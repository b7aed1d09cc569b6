"""Leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import Unreadable
from kube.objects import Lease, read_lease, write_lease
from kube.objects.leases import write_micro_time

TIMES = st.none() | st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001 - as above
    timezones=st.just(UTC),
)


@given(
    holder=st.text(max_size=8),
    duration_s=st.integers(0, 3600),
    acquired_at=TIMES,
    renewed_at=TIMES,
    n_transitions=st.integers(0, 10**6),
    resource_version=st.sampled_from(["", "7"]),
)
def test_a_lease_is_read_as_it_was_written(**fields):
    """Times keep their microseconds: they order renewals."""
    lease = Lease("ns", "coterie", **fields)
    assert read_lease(write_lease(lease)) == lease


def test_times_are_written_in_utc():
    """The holder may write times of another zone."""
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    assert write_micro_time(at) == "2026-01-02T01:04:05.000000Z"


@pytest.mark.parametrize("text", ["soon", "2026-01-02T03:04:05"])
def test_a_time_that_is_none_is_reported(text):
    """Else a lease of nonsense would look free; a time without a zone is no moment."""
    with pytest.raises(Unreadable, match=f"time is '{text}', expected RFC 3339"):
        read_lease({"spec": {"renewTime": text}})
