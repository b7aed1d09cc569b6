"""All checks of an installation, in the order in which they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube.errors import Unreadable
from kubectl_coterie.check.certificates import check_certificates
from kubectl_coterie.check.device_plugins import check_device_plugins
from kubectl_coterie.check.extenders import check_extender, check_leases
from kubectl_coterie.check.findings import Finding, Status
from kubectl_coterie.check.nodes import check_devices, check_topologies
from kubectl_coterie.check.plugins import check_plugins
from kubectl_coterie.check.pods import check_pods
from kubectl_coterie.check.policies import check_policies, check_scheduler_name
from kubectl_coterie.check.scheduler_config import check_scheduler_config
from kubectl_coterie.check.versions import check_kubernetes, check_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kubectl_coterie.installation.seen import Seen

__all__ = ["run_checks"]

_CHECKS: tuple[Callable[[Seen], Iterable[Finding]], ...] = (
    check_kubernetes,
    check_versions,
    check_extender,
    check_leases,
    check_plugins,
    check_device_plugins,
    check_topologies,
    check_devices,
    check_scheduler_config,
    check_scheduler_name,
    check_pods,
    check_policies,
    check_certificates,
)


def run_checks(seen: Seen, *, quotes: bool = True) -> list[Finding]:
    """What all checks find; an object of an unexpected shape fails its check alone.

    Without `quotes` what is unexpected is not shown: it may be a key that stands in a wrong place.
    """
    found: list[Finding] = []
    for check in _CHECKS:
        try:
            found += check(seen)
        except Unreadable as error:
            name = check.__name__.removeprefix("check_").replace("_", " ")
            what = f": {error}" if quotes else ""
            found.append(Finding(name, Status.FAILED, f"an object cannot be read{what}"))
    return found
