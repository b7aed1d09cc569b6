"""A pod's tolerations, from the wire.

As of `extender.protocol.node_affinity`: kube-scheduler has held them when it calls an extender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.taints import Toleration

if TYPE_CHECKING:
    from extender.protocol.messages import PodSpec

__all__ = ["read_tolerations"]


def read_tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    """What a pod's spec tolerates."""
    return tuple(
        Toleration(one.key or "", one.operator or "", one.value or "", one.effect or "")
        for one in spec.tolerations or ()
    )
