"""The demo's nodes for jobs of several pods: DGX H100 under the leaves of one spine.

They belong to the same embedded cluster as the fleet, behind its nodes, and carry the labels by
which Coterie knows where they are. Pods of the fleet's mix are not offered them: as in many
clusters they are a pool, which pods name in their nodeSelector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.demo.fleet import FLEET, lay_out_nodes
from extender.embedded import ClusterSpec, parse_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.demo.fleet import DemoNode

__all__ = ["MACHINE", "POOL", "by_leaf", "lay_out_pool", "leaf_of", "write_cluster"]

MACHINE = "dgx-h100"
LEAVES = ("leaf-a", "leaf-b", "leaf-c")
NODES_A_LEAF = 4
_LEAF, _SPINE = "network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"
POOL = ("example.com/pool", "training")
"""Label and value of the pool's nodes."""
_GENERAL = {POOL[0]: "general"}
"""That of all others: where a label is not known of a node, the extender counts it as allowed."""
FILE = "cluster.yaml"


def _pool() -> ClusterSpec:
    """The pool alone: a group of nodes for each leaf."""
    return ClusterSpec.model_validate(
        {
            "groups": [
                {
                    "count": NODES_A_LEAF,
                    "machine": MACHINE,
                    "name": leaf.replace("leaf", "h100"),
                    "labels": {_LEAF: leaf, _SPINE: "spine-1", POOL[0]: POOL[1]},
                }
                for leaf in LEAVES
            ]
        }
    )


def lay_out_pool() -> dict[str, DemoNode]:
    """The pool's nodes by name, leaf by leaf."""
    return lay_out_nodes(_pool())


def leaf_of(node: DemoNode) -> str:
    """The name of a node's leaf."""
    return node.described[_LEAF]


def by_leaf(pool: Mapping[str, DemoNode]) -> dict[str, list[DemoNode]]:
    """The nodes of each leaf."""
    leaves: dict[str, list[DemoNode]] = {}
    for node in pool.values():
        leaves.setdefault(leaf_of(node), []).append(node)
    return leaves


def write_cluster(folder: Path, fleet: str = FLEET) -> Path:
    """Describe fleet and pool in a file that the extender starts from; returns its path."""
    general = [one.model_copy(update={"labels": _GENERAL}) for one in parse_cluster(fleet).groups]
    whole = ClusterSpec(groups=[*general, *_pool().groups])
    path = folder / FILE
    # JSON is YAML too.
    path.write_text(whole.model_dump_json(indent=1, exclude_defaults=True), encoding="utf-8")
    return path
