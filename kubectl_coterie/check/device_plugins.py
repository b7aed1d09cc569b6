"""Whether any node has two plugins that serve GPUs: the kubelet calls the one that came last.

NVIDIA's are known by the labels of the GPU operator, of its chart, of its static manifest and of
GKE (docs/migrate.md); a plugin that is part of the node's image has no pod and is not seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_coterie.check.findings import Finding, Status
from kubectl_coterie.check.names import listed
from kubectl_coterie.installation.interest import is_nvidia_plugin
from topology.model import object_at, text_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_coterie.installation.seen import Seen

__all__ = ["check_device_plugins"]

CHECK = "device plugins"


def check_device_plugins(seen: Seen) -> Iterator[Finding]:
    """One finding: the nodes that have two."""
    if seen.pods.value is None:
        yield Finding(CHECK, Status.NOT_KNOWN, seen.pods.missing)
        return
    running = [
        object_at(pod, "spec")
        for pod in seen.pods.value
        if is_nvidia_plugin(pod) and text_at(object_at(pod, "status"), "phase") == "Running"
    ]
    nvidias = {text_at(spec, "nodeName") for spec in running}
    serving = {program.node for program in seen.plugins if not program.is_reporter}
    both = sorted(nvidias & serving)
    if both:
        yield Finding(
            CHECK,
            Status.FAILED,
            f"NVIDIA's device plugin and Coterie's both serve GPUs on {listed(both, 'node')}",
            "take one of them off these nodes (docs/migrate.md), or run Coterie's as a reporter",
        )
        return
    n_reporters = len(seen.plugins) - len(serving)
    yield Finding(
        CHECK,
        Status.OK,
        f"no node has two: Coterie's serves on {len(serving)} and reports on {n_reporters}, "
        f"NVIDIA's serves on {len(nvidias)}",
    )
