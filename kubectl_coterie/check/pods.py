"""Whether pods with wishes to Coterie go to a scheduler that heeds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.check.findings import Finding, Status
from kubectl_coterie.check.names import listed
from kubectl_coterie.installation.interest import has_wishes
from topology.model import object_at, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_coterie.cluster import Object
    from kubectl_coterie.installation.seen import Seen

__all__ = ["check_pods"]

CHECK = "pods"
_ENDED = {"Succeeded", "Failed"}


def check_pods(seen: Seen) -> Iterator[Finding]:
    """One finding: the pods that another scheduler places."""
    if seen.pods.value is None:
        yield Finding(CHECK, Status.NOT_KNOWN, seen.pods.missing)
        return
    wishing = [pod for pod in seen.pods.value if has_wishes(pod) and not _is_ended(pod)]
    if seen.is_audit:
        about = f"{len(wishing)} with annotations of Coterie, which have no effect in audit mode"
        yield Finding(CHECK, Status.OK, about)
        return
    served = seen.scheduler_names
    lost = [pod for pod in wishing if _scheduler(pod) not in served]
    if lost:
        schedulers = ", ".join(sorted({_scheduler(pod) for pod in lost}))
        yield Finding(
            CHECK,
            Status.WARNING,
            f"{listed([_name(pod) for pod in lost], 'pod')} with annotations of Coterie, for "
            f"scheduler {schedulers}, which does not heed them",
            f"set spec.schedulerName to {served[0]} in what makes these pods (docs/user-guide.md)",
        )
    else:
        about = f"{len(wishing)} with annotations of Coterie, all for {', '.join(served)}"
        yield Finding(CHECK, Status.OK, about)


def _is_ended(pod: Object) -> bool:
    return text_at(object_at(pod, "status"), "phase") in _ENDED


def _scheduler(pod: Object) -> str:
    return text_at(object_at(pod, "spec"), "schedulerName") or "default-scheduler"


def _name(pod: Object) -> str:
    metadata = object_at(pod, "metadata")
    return f"{text_at(metadata, 'namespace')}/{text_at(metadata, 'name')}"
