"""What the cluster's free GPUs still hold: near-best sets, and GPUs that are stranded.

Counts by machine type and size, from the tables that each machine type has for the sizes of the
demand (`topology.select.near_best_counts`). Each distinct state of a node is looked up once, when
the metrics are scraped and the cluster has changed since; a request never does any of it. Nodes
that take no new pod (cordoned, not ready, unreachable, under pressure) are left out; the kubelets'
Topology Managers and what else kube-scheduler knows of nodes (taints, other resources) do not
enter.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from topology.value import mask_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.snapshot import ClusterSnapshot, NodeClass
    from extender.state import LiveCluster

__all__ = ["NearBestSets"]


class NearBestSets:
    """The counts of one cluster, of the devices of each of the `resources`."""

    def __init__(self, cluster: LiveCluster, resources: Sequence[str]) -> None:
        self._cluster = cluster
        self._resources = resources
        self._counted: tuple[int, frozenset[str]] | None = None
        self._counts: Mapping[tuple[str, int], tuple[int, int]] = {}

    def count(self) -> Mapping[tuple[str, int], tuple[int, int]]:
        """By machine and size: near-best sets side by side, and free GPUs of nodes without one.

        Of machines of up to 16 devices, for the sizes of the demand that they hold when empty.
        O(nodes), and O(distinct states of nodes x sizes) where the cluster changed since the last
        call.
        """
        moment = self._cluster.moment()
        unschedulable = moment.unschedulable
        counted = moment.generation, unschedulable
        if counted != self._counted:
            counts: defaultdict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
            for resource in self._resources:
                snapshot = self._cluster.snapshot_of(resource)
                for node_class, states in _states(snapshot, resource, unschedulable).items():
                    for size, found in _count(node_class, states).items():
                        before = counts[node_class.name, size]
                        counts[node_class.name, size] = before[0] + found[0], before[1] + found[1]
            self._counts, self._counted = dict(sorted(counts.items())), counted
        return self._counts


def _states(
    snapshot: ClusterSnapshot, resource: str, unschedulable: Iterable[str]
) -> dict[NodeClass, list[tuple[int, int]]]:
    """Of each class with tables: the free masks that occur, and on how many open nodes."""
    states: defaultdict[NodeClass, list[tuple[int, int]]] = defaultdict(list)
    takes_pods = np.ones(len(snapshot.views), dtype=np.bool_)
    takes_pods[[snapshot.positions[name] for name in unschedulable]] = False
    n_all = np.bincount(snapshot.state_ids)
    n_nodes = np.bincount(snapshot.state_ids[takes_pods], minlength=len(n_all))
    occurring: list[int] = n_all.nonzero()[0].tolist()
    for number in occurring:
        view = snapshot.samples[number]
        node_class = view.node_class
        if (
            node_class.resource == resource
            and node_class.machine is not None
            and node_class.machine.near_best
        ):
            states[node_class].append((view.free, int(n_nodes[number])))
    return states


def _count(node_class: NodeClass, states: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """By size: near-best sets, and stranded GPUs."""
    machine = node_class.machine
    if machine is None:
        return {}
    free, n_nodes = np.array(states, dtype=np.int64).T
    n_free = mask_index(machine.selector.n_gpus).size[free] * n_nodes
    counts: dict[int, tuple[int, int]] = {}
    for size, table in machine.near_best.items():
        n_sets = table[free]
        counts[size] = int((n_sets * n_nodes).sum()), int(n_free[n_sets == 0].sum())
    return counts
