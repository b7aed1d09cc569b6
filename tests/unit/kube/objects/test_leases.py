"""Leases."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kube.errors import Unreadable
from kube.objects import Lease, read_lease


def test_a_lease_is_read():
    """Who leads, and since when; one that was released has no holder."""
    spec = {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-02T03:04:05.000006Z",
    }
    renewed_at = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    assert read_lease({"spec": spec}) == Lease("a", 15, renewed_at)
    assert read_lease({"spec": {}}) == Lease("", 0, None)


@pytest.mark.parametrize("text", ["soon", "2026-01-02T03:04:05"])
def test_a_time_that_is_none_is_reported(text):
    """Else a lease of nonsense would look free; a time without a zone is no moment."""
    with pytest.raises(Unreadable, match=f"time is '{text}', expected RFC 3339"):
        read_lease({"spec": {"renewTime": text}})
