"""What others do: every policy that Coterie is compared with, behind one interface.

A policy sees the node's labels (`NodeTopology`), the free GPUs and a size: never the measured
bandwidth that judges it.
"""

from __future__ import annotations

from benchmarks.rivals.mapa import MAPA_GREEDY, MAPA_PRESERVE
from benchmarks.rivals.rival import Chooser, Rival
from benchmarks.rivals.shipped import NVIDIA_BEST_EFFORT, PLAIN_KUBELET

__all__ = [
    "MAPA_GREEDY",
    "MAPA_PRESERVE",
    "NVIDIA_BEST_EFFORT",
    "PLAIN_KUBELET",
    "Chooser",
    "Rival",
]
