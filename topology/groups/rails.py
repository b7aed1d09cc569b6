"""Which of several equal sets a member gets, so that the group's traffic stays on its rails.

What it answers: of sets of one node that are worth the same, the one with the most distinct NICs
near it, and of those the one that uses the NIC positions that the group uses on other nodes. It
never weighs the value of a set: the candidates are equal in it.

Method. Data centres join the NICs of one position of all nodes by one leaf switch, a rail. NCCL
keeps a ring on one rail (nccl@5067397c src/graph/search.cc:604-612), and GPUs that share a NIC
share its rate (`topology.groups.value_group`). A NIC's position on its node is its place in the
order of the GPUs near it, not of its name: nodes of one machine type may name or list theirs
otherwise. Only RDMA NICs within PXB of a GPU have a position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.errors import InvalidRequest
from topology.model import gpus_of, levels_text
from topology.value import rdma_nics_near

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from topology.model import Nic, NodeTopology

__all__ = ["choose_on_rails", "gpu_rails", "rails_of"]


def gpu_rails(topology: NodeTopology) -> tuple[int, ...]:
    """For each GPU the mask of the NIC positions near it. O(GPUs * NICs).

    Positions count from 0, by the NICs' levels to the GPUs in GPU order, nearest first; NICs that
    are alike in that keep the node's order.

    >>> from topology.recordings import load_recording
    >>> gpu_rails(load_recording("dgx-h100"))[:3]
    (1, 2, 4)
    """
    near = [{nic.name for nic in rdma_nics_near(topology, 1 << i)} for i in range(topology.n_gpus)]

    def place(nic: Nic) -> tuple[list[bool], str]:
        return [nic.name not in names for names in near], levels_text(nic.levels)

    every = (1 << topology.n_gpus) - 1
    ordered = sorted(rdma_nics_near(topology, every), key=place)
    return tuple(
        sum(1 << position for position, nic in enumerate(ordered) if nic.name in names)
        for names in near
    )


def rails_of(rails: Sequence[int], mask: int) -> int:
    """The NIC positions near any GPU of a set; `rails` as `gpu_rails` gives them.

    >>> rails_of((1, 2, 4), 0b101)
    5
    """
    found = 0
    for gpu in gpus_of(mask):
        found |= rails[gpu]
    return found


def choose_on_rails(candidates: Collection[int], rails: Sequence[int], used: int) -> int:
    """Choose one of several sets of one value on one node, all masks.

    `used`: the NIC positions that the group uses on its other nodes, 0 for its first. In this
    order: most distinct NICs, fewest positions that are not in use, lowest GPUs. O(candidates).
    Raises `InvalidRequest` without a candidate.

    >>> choose_on_rails([0b0011, 0b1100], rails=(1, 2, 4, 8), used=0b1100)
    12
    """
    if not candidates:
        msg = "no set to choose from, expected at least one"
        raise InvalidRequest(msg)

    def preference(mask: int) -> tuple[int, int, list[int]]:
        own = rails_of(rails, mask)
        return -own.bit_count(), (own & ~used).bit_count(), list(gpus_of(mask))

    return min(candidates, key=preference)
