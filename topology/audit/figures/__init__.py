"""What sets of a machine type are worth, and what other choices would give from the same GPUs.

Knows masks of GPUs; knows no pod and no node.
"""

from topology.audit.figures.best_effort import NvidiaNode, nvidia_pair_scores
from topology.audit.figures.machine import MachineFigures, SetWorth, kubelet_orders

__all__ = [
    "MachineFigures",
    "NvidiaNode",
    "SetWorth",
    "kubelet_orders",
    "nvidia_pair_scores",
]
