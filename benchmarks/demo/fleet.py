"""The demo's fleet: which recorded machines are in the cluster, and what their sets are worth.

Names the description of the cluster that the extender starts from, and builds for every node the
tables by which all policies are judged alike. It places nothing.

Every machine is one of `topology.recordings`; all offer `nvidia.com/gpu`, so AMD machines are left
out. Node names and device ids are those of `extender.embedded`, the same in every process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.demo.pods import PRODUCT_LABEL, Product
from extender.embedded import lay_out, parse_cluster
from extender.state import HOSTNAME
from topology.annotations import Affinity
from topology.select import MachineTables, affinity_level, build_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from extender.embedded import ClusterSpec
    from topology.model import NodeTopology

__all__ = ["FLEET", "DemoNode", "lay_out_fleet", "lay_out_nodes", "list_products"]

FLEET = (
    "6x dgx-1-v100, 1x dgx-1-v100-dead-link, 4x dgx-1-p100, 3x dgx-a100, 2x dgx-h100, "
    "1x hgx-h200, 4x 8x-a6000-bridged, 3x 8x-a100-pcie-pairs, 2x 8x-rtx4090, 4x summit, "
    "4x 4x-a100-sxm, 3x 4x-l40s, 3x gb200-tray"
)
"""Forty nodes of thirteen types: cube meshes, bridged pairs, switched fabrics, plain PCIe."""

FLAT_LOSS = 0.02
"""Most loss of any set of a machine on which the choice of the set gains nothing."""
_LEVELS = (Affinity.NVLINK, Affinity.PCIE_SWITCH, Affinity.NUMA)


@dataclass(frozen=True, slots=True, eq=False)
class DemoNode:
    """One node; `ids` are its device ids in device order, `described` the labels of its cluster."""

    name: str
    machine: str
    topology: NodeTopology
    tables: MachineTables
    ids: tuple[str, ...]
    described: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def labels(self) -> dict[str, str]:
        """The Node's labels, as far as a pod's nodeSelector names them here."""
        return {**self.described, HOSTNAME: self.name, PRODUCT_LABEL: self.product}

    @property
    def n_gpus(self) -> int:
        """Number of GPUs."""
        return len(self.ids)

    @property
    def product(self) -> str:
        """GPU model as the label `nvidia.com/gpu.product` has it: blanks become hyphens."""
        return (self.topology.gpus[0].model or "unknown").replace(" ", "-")

    @property
    def is_flat(self) -> bool:
        """Whether every set of a size is worth the same, within 2 %: a switched fabric."""
        return all(
            self.relative(mask) >= 1 - FLAT_LOSS
            for mask in range(1, 1 << self.n_gpus)
            if mask.bit_count() > 1
        )

    def value_gbytes_per_s(self, gpus: int) -> float:
        """Predicted all-reduce bus bandwidth of a set (a mask), GB/s; 0 for one GPU."""
        return float(self.tables.value[gpus])

    def relative(self, gpus: int) -> float:
        """Value of a set over the best set of that size on the empty machine; 1 for one GPU."""
        best = self.tables.best_value[gpus.bit_count()]
        return self.value_gbytes_per_s(gpus) / best if best else 1.0

    def has_affinity(self, gpus: int, affinity: Affinity) -> bool:
        """Whether a set has a level; true of one GPU, and where no level is named."""
        level = affinity_level(self.tables, affinity)
        return gpus.bit_count() < 2 or level is None or bool(level[gpus])


def lay_out_fleet(cluster: str = FLEET) -> dict[str, DemoNode]:
    """Make the nodes by name, in the order of the description.

    Raises `ClusterSpecError` for a description that cannot be read.
    """
    return lay_out_nodes(parse_cluster(cluster))


def lay_out_nodes(cluster: ClusterSpec) -> dict[str, DemoNode]:
    """The same of a cluster that was read; one table for each machine type."""
    tables: dict[str, MachineTables] = {}
    nodes: dict[str, DemoNode] = {}
    for node in lay_out(cluster):
        if node.topology is None:
            continue
        if node.group not in tables:
            tables[node.group] = build_tables(node.topology)
        nodes[node.name] = DemoNode(
            node.name, node.group, node.topology, tables[node.group], node.ids, node.labels
        )
    return nodes


def list_products(nodes: Iterable[DemoNode]) -> tuple[Product, ...]:
    """The GPU models of a fleet, in the order of its nodes, with what a pod may ask of each."""
    n_gpus: dict[str, int] = {}
    largest: dict[str, dict[str, int]] = {}
    for node in nodes:
        most = largest.setdefault(node.product, {})
        n_gpus[node.product] = n_gpus.get(node.product, 0) + node.n_gpus
        most[Affinity.ANY.value] = max(most.get(Affinity.ANY.value, 0), node.n_gpus)
        for affinity in _LEVELS:
            most[affinity.value] = max(most.get(affinity.value, 0), _largest(node.tables, affinity))
    return tuple(Product(name, n_gpus[name], most) for name, most in largest.items())


def _largest(tables: MachineTables, affinity: Affinity) -> int:
    """GPUs of the largest set that has a level; 0 where no pair has it."""
    level = affinity_level(tables, affinity)
    sizes = [] if level is None else [int(mask).bit_count() for mask in level.nonzero()[0]]
    most = max(sizes, default=0)
    return most if most > 1 else 0
