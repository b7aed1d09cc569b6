"""Which GPUs have a network port at hand.

What it answers: the GPUs with an RDMA NIC within PXB, and those that might have one if everything
unknown turned out well. The difference separates "never" from "unknown". It chooses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.model import PcieLevel, mask_of

if TYPE_CHECKING:
    from topology.model import NodeTopology

__all__ = ["gpus_maybe_near_rdma", "gpus_near_rdma"]

_NEAR = frozenset({PcieLevel.PIX, PcieLevel.PXB})


def gpus_near_rdma(topology: NodeTopology) -> int:
    """Mask of the GPUs with an RDMA NIC within PXB."""
    return mask_of(
        i
        for i in range(topology.n_gpus)
        if any(nic.is_rdma and nic.levels[i] in _NEAR for nic in topology.nics)
    )


def gpus_maybe_near_rdma(topology: NodeTopology) -> int:
    """The same, where an unknown level counts as near and a port of unknown kind as RDMA."""
    return mask_of(
        i
        for i in range(topology.n_gpus)
        if any(
            nic.is_rdma is not False and nic.levels[i] in _NEAR | {PcieLevel.UNKNOWN}
            for nic in topology.nics
        )
    )
