"""A request for a set of GPUs, and how it ends: with a set, or with a reason.

What it answers: what `topology.select.selection`, `topology.select.large` and `topology.select.fit`
take and return. "Does not fit" is a value with a reason from a closed set, never an exception. It
decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from topology.value import mask_of

if TYPE_CHECKING:
    from topology.annotations import PlacementPolicy
    from topology.value import Limit

__all__ = ["Selected", "SetRequest", "Unfit", "UnfitReason"]


@dataclass(frozen=True, slots=True)
class SetRequest:
    """The kubelet's three inputs and a pod's policy; masks of GPUs.

    GPUs `beside` are free as well and not to be chosen: they count in what is left behind, on
    machines of up to 16 GPUs.
    """

    available: int
    size: int
    must_include: int
    policy: PlacementPolicy
    beside: int = 0


class UnfitReason(Enum):
    """Why no set fits; constant sentences, for people and for kube-scheduler's grouping."""

    TOO_FEW_GPUS = "node has fewer GPUs than the container requests"
    NOT_ENOUGH_FREE = "not enough free GPUs"
    CONTAINERS_TAKEN = "free GPUs cannot be divided among the pod's containers as requested"
    MUST_INCLUDE = "GPUs that must be included are not free or are too many"
    MIXED_MODELS = "free GPUs of one model are too few"
    AFFINITY_NEVER = "never on this node: no GPU set of that size has the required affinity"
    AFFINITY_UNKNOWN = "links that the required affinity needs are unknown on this node"
    AFFINITY_TAKEN = "no free GPU set has the required affinity"
    NIC_NEVER = "never on this node: no GPU set of that size has an RDMA NIC within PXB"
    NIC_UNKNOWN = "whether a GPU set has an RDMA NIC within PXB is unknown on this node"
    NIC_TAKEN = "no free GPU set has an RDMA NIC within PXB"
    BANDWIDTH_NEVER = "never on this node: no GPU set of that size reaches the minimum bandwidth"
    BANDWIDTH_UNKNOWN = "facts that the minimum bandwidth needs are unknown on this node"
    BANDWIDTH_TAKEN = "no free GPU set reaches the minimum bandwidth"
    ALIGNMENT_NEVER = (
        "never on this node: the kubelet's Topology Manager admits no GPU set of that size"
    )
    ALIGNMENT_TAKEN = (
        "the kubelet's Topology Manager would refuse the pod with the GPUs that are free"
    )
    ALIGNMENT_APART = (
        "the kubelet's Topology Manager would confine the pod to GPUs that do not satisfy it"
    )


@dataclass(frozen=True, slots=True)
class Selected:
    """A set that was chosen.

    `gpus` ascending; `value_gbytes_per_s` 0 for one GPU (nothing to reduce); `loss` is 1 -
    value / the best value of that size on the empty machine with all links up, 0..1 (0 for one
    GPU); `satisfies_affinity` is True where no level was requested; `has_near_nic`: there is an
    RDMA NIC within PXB; `remainder_cost_gpus` is R(F) - R(F - S) in GPU-equivalents (R times the
    number of GPUs); `value_class` 0 is the best of its size on the machine.
    """

    gpus: tuple[int, ...]
    value_gbytes_per_s: float
    loss: float
    satisfies_affinity: bool
    has_near_nic: bool
    remainder_cost_gpus: float
    value_class: int
    limit: Limit

    @property
    def mask(self) -> int:
        """The set as a bit mask."""
        return mask_of(self.gpus)


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why nothing fits: the reason, and the request beside what is there."""

    reason: UnfitReason
    detail: str
