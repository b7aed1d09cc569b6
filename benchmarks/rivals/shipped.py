"""What clusters run today: the kubelet alone, and NVIDIA's device plugin.

- The kubelet without a preferred allocation walks a Go map of device ids, whose order is random
  (kubernetes, pkg/kubelet/cm/devicemanager/manager.go, `devicesToAllocate`); a uniform draw stands
  in for it.
- NVIDIA's best-effort allocation is `topology.audit.NvidiaNode`, which the audit of a cluster
  compares with too, with the free GPUs in random order, as the kubelet names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.rivals.rival import Rival
from topology.audit import NvidiaNode, nvidia_pair_scores
from topology.model import gpus_of, mask_of

if TYPE_CHECKING:
    from random import Random

    from benchmarks.rivals.rival import Chooser
    from topology.model import NodeTopology

__all__ = ["NVIDIA_BEST_EFFORT", "PLAIN_KUBELET"]


def _kubelet(_topology: NodeTopology) -> Chooser:
    def choose(free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        del is_sensitive
        gpus = gpus_of(free)
        return mask_of(rng.sample(gpus, size)) if size <= len(gpus) else None

    return choose


def _best_effort(topology: NodeTopology) -> Chooser:
    node = NvidiaNode(nvidia_pair_scores(topology))

    def choose(free: int, size: int, rng: Random, *, is_sensitive: bool = True) -> int | None:
        del is_sensitive
        order = list(gpus_of(free))
        rng.shuffle(order)
        return node.allocate(order, size)

    return choose


PLAIN_KUBELET = Rival("plain kubelet (random ids)", _kubelet)
NVIDIA_BEST_EFFORT = Rival("NVIDIA best-effort", _best_effort)
