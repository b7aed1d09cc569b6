"""Whether the extender serves: its pods, its own answer, and the Leases that name a leader.

In audit mode there is none, and that is said and no fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube.errors import Unreadable
from kube.objects import read_lease
from kubectl_coterie.check.findings import Finding, Status
from kubectl_coterie.check.names import counted
from kubectl_coterie.check.plugins import pods_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_coterie.cluster import Object
    from kubectl_coterie.installation.seen import Seen

__all__ = ["check_extender", "check_leases"]

CHECK, LEASE_CHECK = "extender", "leader"
SKEW_S = 5.0
"""How far the clocks of this machine and the cluster may be apart."""
_SEE_LOGS = "see the logs of the pods that should lead"


def check_extender(seen: Seen) -> Iterator[Finding]:
    """Pods that are ready, and whether the extender's state is complete and fresh."""
    if seen.programs.value is None and seen.cluster.value is None:
        yield Finding(CHECK, Status.NOT_KNOWN, seen.programs.missing)
        return
    if seen.is_audit:
        nodes = counted(len({one.node for one in seen.plugins}), "node")
        yield Finding(CHECK, Status.OK, f"audit mode: reporter on {nodes}, nothing is placed")
        return
    if not seen.extenders and seen.cluster.value is None:
        about = "no extender was found in the cluster; whether one runs elsewhere is not known"
        todo = "install it (docs/install.md), or name its --extender-namespace or --extender-url"
        yield Finding(CHECK, Status.WARNING, about, todo)
        return
    yield from pods_ready(CHECK, seen.extenders, "extender")
    if seen.cluster.value is None:
        about = f"the read API does not answer: {seen.cluster.missing}"
        yield Finding(CHECK, Status.NOT_KNOWN, about)
    elif not seen.cluster.value["is_ready"]:
        about = "the extender's state is not complete and fresh: GPU pods wait"
        yield Finding(
            CHECK, Status.FAILED, about, "/readyz says what is missing (docs/operations.md)"
        )
    else:
        sums = seen.cluster.value
        about = (
            f"ready: {sums['n_nodes']} nodes, {sums['gpus']} GPUs, {sums['pods_placed']} pods "
            f"placed, {sums['pods_pending']} wait"
        )
        yield Finding(CHECK, Status.OK, about)


def check_leases(seen: Seen) -> Iterator[Finding]:
    """The Leases of Coterie's own schedulers."""
    for key, read in seen.leases.items():
        if read.value is not None:
            yield _leader(key, read.value, seen)
        elif read.is_absent:
            about = f"Lease {key} is not there: none has led yet"
            yield Finding(LEASE_CHECK, Status.FAILED, about, _SEE_LOGS)
        else:
            yield Finding(LEASE_CHECK, Status.NOT_KNOWN, read.missing)


def _leader(key: str, content: Object, seen: Seen) -> Finding:
    try:
        lease = read_lease(content)
    except Unreadable as error:
        return Finding(LEASE_CHECK, Status.FAILED, f"Lease {key}: {error}", "delete it")
    if not lease.holder or lease.renewed_at is None:
        about = f"Lease {key} has no leader: nothing is bound"
        return Finding(LEASE_CHECK, Status.FAILED, about, _SEE_LOGS)
    age_s = seen.now_s - lease.renewed_at.timestamp()
    if age_s > lease.duration_s + SKEW_S:
        about = f"Lease {key} was renewed {age_s:.0f} s ago by {lease.holder}, and has expired"
        return Finding(LEASE_CHECK, Status.FAILED, about, _SEE_LOGS)
    return Finding(LEASE_CHECK, Status.OK, f"{lease.holder} leads, by Lease {key}")
