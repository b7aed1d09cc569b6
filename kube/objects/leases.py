"""Reads who holds a Lease (coordination.k8s.io/v1), and until when: which kube-scheduler leads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from topology.errors import quote
from topology.model import object_at, text_at, whole_at

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Lease", "read_lease"]


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease; `holder` is empty where it was released."""

    holder: str
    duration_s: int
    renewed_at: datetime | None


def read_lease(content: Mapping[str, object]) -> Lease:
    """Read a Lease. Raises `Unreadable`."""
    spec = object_at(content, "spec")
    return Lease(
        holder=text_at(spec, "holderIdentity"),
        duration_s=whole_at(spec, "leaseDurationSeconds"),
        renewed_at=_time(text_at(spec, "renewTime")),
    )


def _time(text: str) -> datetime | None:
    if not text:
        return None
    msg = f"time is {quote(text)}, expected RFC 3339"
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise Unreadable(msg) from error
    if at.tzinfo is None:
        raise Unreadable(msg)
    return at
