"""The lease by which replicas elect the one that writes.

Reads who holds a Lease (coordination.k8s.io/v1) and until when, and writes one. Times are the API's
MicroTime: UTC with six digits after the second. It decides nothing about who should hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from kube.objects.fields import object_at, text_at, whole_at
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Lease", "read_lease", "write_lease", "write_micro_time"]


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease. `resource_version` is empty for one that is not there yet; `holder` if released."""

    namespace: str
    name: str
    holder: str
    duration_s: int
    acquired_at: datetime | None
    renewed_at: datetime | None
    n_transitions: int
    resource_version: str = ""


def read_lease(content: Mapping[str, object]) -> Lease:
    """Read a Lease. Raises `Unreadable`."""
    meta, spec = object_at(content, "metadata"), object_at(content, "spec")
    return Lease(
        namespace=text_at(meta, "namespace"),
        name=text_at(meta, "name"),
        holder=text_at(spec, "holderIdentity"),
        duration_s=whole_at(spec, "leaseDurationSeconds"),
        acquired_at=_time(text_at(spec, "acquireTime")),
        renewed_at=_time(text_at(spec, "renewTime")),
        n_transitions=whole_at(spec, "leaseTransitions"),
        resource_version=text_at(meta, "resourceVersion"),
    )


def write_lease(lease: Lease) -> Mapping[str, object]:
    """Write a Lease; with its resourceVersion, so that an update by another is not overwritten."""
    meta = {"namespace": lease.namespace, "name": lease.name}
    if lease.resource_version:
        meta["resourceVersion"] = lease.resource_version
    spec: dict[str, object] = {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": lease.duration_s,
        "leaseTransitions": lease.n_transitions,
    }
    for key, at in (("acquireTime", lease.acquired_at), ("renewTime", lease.renewed_at)):
        if at is not None:
            spec[key] = write_micro_time(at)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": meta,
        "spec": spec,
    }


def write_micro_time(at: datetime) -> str:
    """Write a MicroTime (apimachinery v0.36.3, meta/v1 micro_time.go, RFC3339Micro).

    >>> write_micro_time(datetime(2026, 1, 2, 3, 4, 5, 6, UTC))
    '2026-01-02T03:04:05.000006Z'
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


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
