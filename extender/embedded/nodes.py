"""The nodes of an embedded cluster as the API server would have them.

Turns what `extender.embedded.spec` lays out into Node objects that look as the kubelet and
Coterie's node plugin would have made them: devices, a zone, and the annotations with topology and
report. The same description always makes the same nodes, ids included.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from extender.embedded.spec import lay_out
from extender.state import KEPT_LABELS, domain_labels
from kube.objects import read_node
from topology.annotations import DevicesReport, UnhealthyDevice, encode_devices
from topology.model import encode_topology, names

if TYPE_CHECKING:
    from extender.embedded.spec import ClusterSpec, EmbeddedNode
    from extender.rules import Rules
    from kube.objects import NodeFacts

__all__ = ["node_facts", "node_manifest", "topology_text"]

_ROOM = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110"}
_TAINT = {"key": "coterie.gpu/described", "value": "soft", "effect": "PreferNoSchedule"}
_UNHEALTHY = "the description says so"


def topology_text(node: EmbeddedNode) -> str | None:
    """The annotation that the node's plugin would publish; None where it knows no topology."""
    if node.topology is None:
        return None
    gpus = zip(node.topology.gpus, node.ids, strict=True)
    own = replace(node.topology, gpus=tuple(replace(gpu, uuid=uuid) for gpu, uuid in gpus))
    return encode_topology(own)


def node_manifest(node: EmbeddedNode) -> dict[str, Any]:
    """The Node with what schedulers and the extender read of its status."""
    text = topology_text(node)
    annotations = {} if text is None else {names.TOPOLOGY: text}
    if node.unhealthy or node.manager is not None:
        bad = tuple(UnhealthyDevice(one, _UNHEALTHY) for one in node.unhealthy)
        report = DevicesReport(generation=1, unhealthy=bad)
        if node.manager is not None:
            report = replace(report, policy=node.manager.policy, scope=node.manager.scope)
        annotations[names.DEVICES] = encode_devices(report)
    n_devices = len(node.ids)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "uid": f"uid-{node.name}",
            "labels": {
                "kubernetes.io/hostname": node.name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": node.group,
                "topology.kubernetes.io/zone": node.zone,
                **_product(node),
                **node.labels,
            },
            "annotations": annotations,
        },
        "spec": {"taints": [_TAINT]} if node.prefer_no_schedule else {},
        "status": {
            "capacity": _ROOM | {node.resource: str(n_devices)},
            "allocatable": _ROOM | {node.resource: str(n_devices - len(node.unhealthy))},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _product(node: EmbeddedNode) -> dict[str, str]:
    """The GPU model as NVIDIA's GPU feature discovery writes it: blanks as hyphens."""
    model = "" if node.topology is None else node.topology.gpus[0].model or ""
    return {"nvidia.com/gpu.product": model.replace(" ", "-")} if model else {}


def node_facts(spec: ClusterSpec, rules: Rules) -> tuple[NodeFacts, ...]:
    """What the extender reads of all nodes, for those who need no server.

    Raises `ClusterSpecError` for a description that cannot be laid out.
    """
    labels = domain_labels(rules.group_families)
    return tuple(read_node(node_manifest(one), labels, KEPT_LABELS) for one in lay_out(spec))
