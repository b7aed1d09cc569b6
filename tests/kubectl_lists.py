"""Nodes and pods as `kubectl get … -o json` prints them, reduced to what an audit may look at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topology.annotations import (
    ContainerPlan,
    DeviceHold,
    DevicesReport,
    encode_allocation,
    encode_devices,
)
from topology.model import DEFAULT_RESOURCE, encode_topology, names
from topology.recordings import load_recording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.model import NodeTopology

__all__ = ["RESOURCE", "held_by", "kube_list", "named", "node", "pod", "uuids"]

RESOURCE = DEFAULT_RESOURCE


def kube_list(*items: object) -> dict[str, Any]:
    """The list that kubectl prints."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def uuids(node_name: str, *gpus: int) -> tuple[str, ...]:
    """Device ids of a node of this module."""
    return tuple(f"GPU-{node_name}-{gpu}" for gpu in gpus)


def named(topology: NodeTopology, node_name: str) -> NodeTopology:
    """The topology with the device ids of a node of this module."""
    gpus = (replace(gpu, uuid=uuids(node_name, i)[0]) for i, gpu in enumerate(topology.gpus))
    return replace(topology, gpus=tuple(gpus))


def node(
    name: str,
    machine: NodeTopology | str | None = "dgx-1-v100",
    *,
    report: DevicesReport | None = None,
    allocatable: Mapping[str, object] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A node with a machine, by its recording's name; `machine` None has no topology."""
    found = dict(annotations or {})
    n_gpus = 8
    if machine is not None:
        topology = load_recording(machine) if isinstance(machine, str) else machine
        n_gpus = topology.n_gpus
        found[names.TOPOLOGY] = encode_topology(named(topology, name))
    if report is not None:
        found[names.DEVICES] = encode_devices(report)
    n_unhealthy = 0 if report is None else len(report.unhealthy)
    resources = {"cpu": "96", RESOURCE: str(n_gpus)}
    given = (
        {"cpu": "96", RESOURCE: str(n_gpus - n_unhealthy)} if allocatable is None else allocatable
    )
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {}, "annotations": found},
        "spec": {},
        "status": {"capacity": resources, "allocatable": given},
    }


def held_by(
    pod_name: str, node_name: str, gpus: Sequence[int], container: str = "main"
) -> DeviceHold:
    """What the plugin of a node reports of a pod of this module."""
    return DeviceHold(
        f"uid-{pod_name}", "ml", pod_name, container, RESOURCE, uuids(node_name, *gpus)
    )


def pod(
    name: str,
    node_name: str | None,
    gpus: int | Mapping[str, int] = 2,
    *,
    plan: Sequence[int] = (),
    allocated: Sequence[int] = (),
    status: Sequence[int] = (),
    phase: str = "Running",
    resource: str = RESOURCE,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, object] | None = None,
    init: Sequence[Mapping[str, object]] = (),
) -> dict[str, Any]:
    """A pod; `gpus` of its containers, one called main where it is a number.

    `plan`, `allocated` and `status` say which GPUs main has, and who says so.
    """
    containers = {"main": gpus} if isinstance(gpus, int) else gpus
    found = dict(annotations or {})
    for key, named_gpus in ((names.PLAN, plan), (names.ALLOCATED, allocated)):
        if named_gpus:
            ids = ContainerPlan("main", resource, uuids(node_name or "", *named_gpus))
            found[key] = encode_allocation(node_name or "", (ids,))
    statuses = [
        {
            "name": "main",
            "allocatedResourcesStatus": [
                {
                    "name": resource,
                    "resources": [
                        {"resourceID": one, "health": "Healthy"}
                        for one in uuids(node_name or "", *status)
                    ],
                }
            ],
        }
    ]
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": f"uid-{name}",
            "annotations": found,
        },
        "spec": {
            **({} if node_name is None else {"nodeName": node_name}),
            "initContainers": list(init),
            "containers": [
                {"name": one, "resources": {"limits": {resource: str(n)}} if n else {}}
                for one, n in containers.items()
            ],
            **(spec or {}),
        },
        "status": {"phase": phase, "containerStatuses": statuses if status else []},
    }
