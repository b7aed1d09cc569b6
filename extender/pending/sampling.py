"""Whether a filter request names a sample of the nodes, or all that passed the scheduler's filters.

kube-scheduler stops looking for nodes once enough have passed its own filters, where its
`percentageOfNodesToScore` is below 100 (Kubernetes 1.36, schedule_one.go `numFeasibleNodesToFind`,
`findNodesThatPassFilters`): of N nodes at N * percentage / 100, but not below 100. By default the
percentage is 50 - N / 125 and at least 5. The next attempt begins where this one stopped. The
setting is not known here, but a sample has exactly such a size.
"""

from __future__ import annotations

__all__ = ["is_sample_size", "n_samples"]

_LEAST_NODES = 100
"""minFeasibleNodesToFind."""
_ALL_PERCENT = 100


def is_sample_size(n_requested: int, n_nodes: int) -> bool:
    """Whether some percentage makes a sample of this size of so many nodes.

    False where it is certain that all nodes were looked at. May be true by chance, of a pod whose
    selectors leave it just as many.

    >>> is_sample_size(120, 250), is_sample_size(121, 250), is_sample_size(99, 250)
    (True, False, False)
    """
    if not _LEAST_NODES <= n_requested < n_nodes:
        return False
    percentage = -(-n_requested * _ALL_PERCENT // n_nodes)
    return n_requested == _LEAST_NODES or n_nodes * percentage // _ALL_PERCENT == n_requested


def n_samples(n_requested: int, n_nodes: int) -> int:
    """How many samples of this size it takes to have all nodes; at least 1 is requested."""
    return -(-n_nodes // n_requested)
