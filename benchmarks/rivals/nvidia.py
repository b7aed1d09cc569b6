"""NVIDIA's best-effort allocation with the free GPUs in random order, as the kubelet names them.

The policy itself is `topology.audit.NvidiaNode`, which the audit of a cluster compares with too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.masks import members
from benchmarks.rivals.base import Rival
from topology.audit import NvidiaNode, nvidia_pair_scores

if TYPE_CHECKING:
    from random import Random

    from topology.model import NodeTopology

__all__ = ["NvidiaBestEffort"]


class _ShuffledNode(NvidiaNode):
    def choose(self, free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        del is_sensitive
        order = list(members(free))
        rng.shuffle(order)
        return self.allocate(order, size)


class NvidiaBestEffort(Rival):
    """The device plugin's own preferred allocation."""

    name = "NVIDIA best-effort"

    def prepare(self, topology: NodeTopology) -> _ShuffledNode:
        """Score the node's pairs."""
        return _ShuffledNode(nvidia_pair_scores(topology))
