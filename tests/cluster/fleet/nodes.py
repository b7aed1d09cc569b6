"""Nodes of a test cluster: created through the API, from recordings of real machines.

Turns a described cluster (`extender.embedded.spec`) into Node objects that look as the node agent
and the kubelet would have made them: allocatable devices, a zone, and the annotation
`coterie.gpu/topology` with the device ids of that very node. The same description always makes the
same nodes, ids included.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from extender.embedded import lay_out, parse_cluster
from tests.cluster.control.api import patiently
from topology.annotations import DevicesReport, UnhealthyDevice, encode_devices
from topology.model import encode_topology, names

if TYPE_CHECKING:
    from extender.embedded import ClusterSpec
    from extender.embedded.spec import EmbeddedNode
    from tests.cluster.control.api import Api

__all__ = [
    "FLEET",
    "ZONE",
    "create_nodes",
    "node_manifest",
    "node_path",
    "set_node_gpus",
    "topology_text",
]

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


def topology_text(node: EmbeddedNode) -> str | None:
    """The annotation that the node's agent would publish; None where it knows no topology."""
    if node.topology is None:
        return None
    gpus = zip(node.topology.gpus, node.ids, strict=True)
    own = replace(node.topology, gpus=tuple(replace(gpu, uuid=uuid) for gpu, uuid in gpus))
    return encode_topology(own)


def node_manifest(node: EmbeddedNode) -> dict[str, Any]:
    """The Node, Ready, with its whole status, as it may be posted."""
    text = topology_text(node)
    annotations = {} if text is None else {names.TOPOLOGY: text}
    if node.unhealthy or node.manager is not None:
        bad = tuple(UnhealthyDevice(one, "XID 79") for one in node.unhealthy)
        report = DevicesReport(generation=1, unhealthy=bad)
        if node.manager is not None:
            report = replace(report, policy=node.manager.policy, scope=node.manager.scope)
        annotations[names.DEVICES] = encode_devices(report)
    n_devices = len(node.ids)
    room = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110"}
    taint = {"key": "coterie.gpu/test", "value": "soft", "effect": "PreferNoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": node.group,
                ZONE: node.zone,
                **node.labels,
            },
            "annotations": annotations,
        },
        "spec": {"taints": [taint]} if node.prefer_no_schedule else {},
        "status": {
            "capacity": room | {node.resource: str(n_devices)},
            "allocatable": room | {node.resource: str(n_devices - len(node.unhealthy))},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "stand-in",
                    "lastHeartbeatTime": _now(),
                    "lastTransitionTime": _now(),
                }
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.3",
                "containerRuntimeVersion": "containerd://2.0.0",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "osImage": "stand-in",
                "kernelVersion": "6.12.0",
                "machineID": node.name,
                "systemUUID": node.name,
                "bootID": node.name,
                "kubeProxyVersion": "",
            },
        },
    }


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


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
