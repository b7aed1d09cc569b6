"""Which GPUs have a network port at hand, and which ports a set has.

What it answers: the GPUs with an RDMA NIC within PXB, those that might have one if everything
unknown turned out well (the difference separates "never" from "unknown"), and the NICs within PXB
of a set. It chooses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.model import PcieLevel, gpus_of, known_level, mask_of

if TYPE_CHECKING:
    from topology.model import Nic, NodeTopology

__all__ = [
    "gpus_maybe_near_rdma",
    "gpus_near_rdma",
    "rdma_nics_near",
]

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
            nic.is_rdma is not False
            and known_level(nic.levels[i], nic.numa_node, topology.gpus[i].numa_node)
            in _NEAR | {PcieLevel.UNKNOWN}
            for nic in topology.nics
        )
    )


def rdma_nics_near(topology: NodeTopology, mask: int) -> tuple[Nic, ...]:
    """The RDMA NICs within PXB of any GPU of a set, each once, in the node's order."""
    gpus = gpus_of(mask)
    return tuple(
        nic for nic in topology.nics if nic.is_rdma and any(nic.levels[i] in _NEAR for i in gpus)
    )
