"""Which labels of nodes are kept, so that a pod's nodeSelector can be held against them.

Those that selectors of pods with GPUs usually name, beside the labels of network domains: the
models that NVIDIA's GPU feature discovery writes, Kubernetes' well-known labels, and the pools of
cloud providers. All labels of thousands of nodes would be many times as much. The verbs
decide by one of them, the GPU model of nodes whose topology is unknown, and hold selectors against
them where a group's members ask for different models; for the rest kube-scheduler names no node to
an extender that a selector excludes.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from topology.node_affinity import KnownLabels

if TYPE_CHECKING:
    from kube.objects import NodeFacts

__all__ = ["HOSTNAME", "KEPT_LABELS", "PRODUCT", "ZONE", "known_labels"]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
PRODUCT = "nvidia.com/gpu.product"
"""The GPUs' model."""
KEPT_LABELS = (
    HOSTNAME,
    ZONE,
    PRODUCT,
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "nvidia.com/gpu.family",
    "topology.kubernetes.io/region",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
)


def known_labels(facts: NodeFacts, domain_labels: tuple[str, ...]) -> KnownLabels:
    """What is known; `domain_labels` are all that `NodeFacts.domains` may have."""
    values = {**facts.domains, **facts.labels}
    if facts.zone:
        values[ZONE] = facts.zone
    known = {sys.intern(key): sys.intern(one) for key, one in values.items()}
    return KnownLabels(known, _keys(domain_labels))


@lru_cache(maxsize=8)
def _keys(domain_labels: tuple[str, ...]) -> frozenset[str]:
    """The same object for all nodes."""
    return frozenset((*domain_labels, *KEPT_LABELS))
