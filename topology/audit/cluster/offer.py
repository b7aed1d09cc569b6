"""What a node's kubelet offers of its GPUs, beside what its topology shows.

What it answers: which resource the topology names, which of its GPUs that resource has, or why that
is not known. It reads no pod's devices.

- As many devices as the topology has, less unhealthy ones: the resource has them all.
- As many as it has whole GPUs, beside partitions: it has these (MIG strategy `mixed`).
- Fewer, on a node that offers MIG profiles too: the others are split, and which ones these are is
  not known (a reporter that is not set to MIG strategy `mixed` shows them as whole).
- Any other number: which devices there are is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.audit.cluster.reasons import AuditProblem, ProblemKind
from topology.model import DEFAULT_RESOURCE, mask_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topology.audit.cluster.objects import AuditNode, AuditPod
    from topology.model import NodeTopology

__all__ = ["OfferedGpus", "described_resource", "offer_of"]

_WHOLE = "/gpu"
_VENDORS = (f"{DEFAULT_RESOURCE.partition('/')[0]}/", "amd.com/")
"""Domains of the device plugins of vendors: others' resources may be in shares of a GPU."""
_PROFILES = "nvidia.com/mig-"


@dataclass(frozen=True, slots=True)
class OfferedGpus:
    """The GPUs that a resource has, as a mask; `n_split` of them are in MIG mode, not known which.

    With a `problem` it is not known which devices there are.
    """

    gpus: int
    n_split: int = 0
    problem: AuditProblem | None = None


def described_resource(node: AuditNode, pods: Iterable[AuditPod] = (), *, n_gpus: int = 0) -> str:
    """The resource whose devices a topology of `n_gpus` names.

    Whole GPUs before shares and partitions; then the one with that many, that of a known vendor,
    the first by name. Where the kubelet offers none, as while no device plugin is registered, what
    the pods request; empty where there is none either.
    """
    known = {
        one for counts in (node.capacity, node.allocatable) for one in counts if counts[one]
    } | set(node.unreadable) or {
        one for pod in pods for container in pod.containers for one in container.requests
    }
    return min(
        known,
        key=lambda one: (
            not one.endswith(_WHOLE),
            _most(node, one) != n_gpus,
            not one.startswith(_VENDORS),
            one,
        ),
        default="",
    )


def offer_of(node: AuditNode, resource: str, topology: NodeTopology, unhealthy: int) -> OfferedGpus:
    """Find out which GPUs of its topology a node offers as a resource; `unhealthy` is a mask."""
    everything = (1 << topology.n_gpus) - 1
    whole = mask_of(i for i, gpu in enumerate(topology.gpus) if gpu.parent is None)
    if resource in node.unreadable:
        text = f"{node.unreadable[resource]}: which GPUs are free is not known"
        return OfferedGpus(everything, problem=AuditProblem(ProblemKind.QUANTITY, text))
    offered = node.allocatable.get(resource, 0)
    for gpus in (everything, whole):
        if (gpus & ~unhealthy).bit_count() <= offered <= gpus.bit_count():
            return OfferedGpus(gpus)
    n_split = topology.n_gpus - _most(node, resource)
    n_healthy = topology.n_gpus - unhealthy.bit_count()
    if _is_split(node) and whole == everything and 0 < n_healthy - n_split <= offered:
        return OfferedGpus(everything, n_split)
    return OfferedGpus(everything, problem=_problem(node, resource, offered, n_healthy))


def _most(node: AuditNode, resource: str) -> int:
    return max(node.capacity.get(resource, 0), node.allocatable.get(resource, 0))


def _is_split(node: AuditNode) -> bool:
    return any(count for one, count in node.capacity.items() if one.startswith(_PROFILES))


def _problem(node: AuditNode, resource: str, offered: int, n_healthy: int) -> AuditProblem:
    is_shared = offered > n_healthy or _is_split(node) or not resource.endswith(_WHOLE)
    return AuditProblem(
        ProblemKind.SHARED if resource and is_shared else ProblemKind.FEWER,
        f"the kubelet offers {offered} of {resource or 'a GPU resource'}, and the topology shows "
        f"{n_healthy} healthy GPU{'' if n_healthy == 1 else 's'}: which are free is not known",
    )
