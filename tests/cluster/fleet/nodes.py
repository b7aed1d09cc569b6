"""Nodes of a test cluster: created through the API, from recordings of real machines.

They are those of an embedded cluster (`extender.embedded`), on a real API server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from extender.embedded import lay_out, node_manifest, parse_cluster
from tests.cluster.control.api import patiently

if TYPE_CHECKING:
    from extender.embedded import ClusterSpec, EmbeddedNode
    from tests.cluster.control.api import Api

__all__ = ["FLEET", "ZONE", "create_nodes", "node_path", "set_node_gpus"]

ZONE = "topology.kubernetes.io/zone"
FLEET = parse_cluster(
    "60x dgx-h100, 40x dgx-a100, 40x hgx-h200, 40x dgx-1-v100, 20x dgx-2, 20x summit, "
    "20x 4x-a100-sxm, 20x 8x-a6000-bridged, 10x 8x-l4, 10x 8x-h100-pcie-pairs, 10x gb200-tray, "
    "10x 8x-b200"
)
"""300 nodes, 2,400 GPUs: switched and meshed NVLink, bridged pairs, PCIe only; 4 to 16 GPUs."""


def node_path(name: str) -> str:
    """Where the API server keeps a node."""
    return f"/api/v1/nodes/{name}"


async def create_nodes(api: Api, spec: ClusterSpec) -> tuple[EmbeddedNode, ...]:
    """Create every node of the description, all at once; returns them in its order."""
    nodes = lay_out(spec)
    await asyncio.gather(*(_create(api, node_manifest(node)) for node in nodes))
    return nodes


async def set_node_gpus(api: Api, name: str, resource: str, count: int) -> None:
    """Change how many devices the node can give away, as when its plugin comes or goes.

    A kubelet's capacity counts unhealthy devices too, and stays for minutes after the plugin left.
    """
    status = {"allocatable": {resource: str(count)}}
    await api.patch(node_path(name) + "/status", {"status": status})


async def _create(api: Api, manifest: dict[str, Any]) -> None:
    """Create one node, without the taint that the API server gives to every new one.

    Admission (TaintNodesByCondition) marks it not ready until a controller-manager has looked, and
    test clusters run none.
    """
    made = await patiently(lambda: api.create("/api/v1/nodes", manifest))
    wanted = manifest["spec"].get("taints", [])
    if made["spec"].get("taints", []) != wanted:
        name = manifest["metadata"]["name"]
        await patiently(lambda: api.patch(node_path(name), {"spec": {"taints": wanted}}))
