"""Nodes and pods as the watches deliver them, for the tests of the live state."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from extender.placement import plan_bind
from extender.protocol import PodRequest, messages, parse_pod
from extender.state import LiveCluster, build_machine_type
from kube.objects import ContainerDevices, NodeFacts, PodFacts, PodObject
from tests.unit.extender.pods import GPU, container
from topology.annotations import (
    ContainerPlan,
    DeviceHold,
    DevicesReport,
    Plan,
    UnhealthyDevice,
    encode_devices,
    encode_plan,
)
from topology.model import NO_LINK, Gpu, NodeTopology, PcieLevel, encode_topology
from topology.recordings import load_recording
from topology.value import DEFAULT_DEMAND

MIG = "nvidia.com/mig-1g.10gb"
MACHINE = load_recording("4x-a100-sxm")
_BUILT = build_machine_type(MACHINE, DEFAULT_DEMAND)


def live(*nodes: NodeFacts, resources: tuple[str, ...] = (GPU,)) -> LiveCluster:
    """A synced cluster of these nodes; the tables are built once for all tests."""
    cluster = LiveCluster(resources, demand=DEFAULT_DEMAND)
    cluster.reader.offer_machine(_BUILT)
    for one in nodes:
        cluster.update_node(one)
    cluster.set_freshness(is_synced=True, observed_at_s=0.0)
    return cluster


def ids(node: str, *positions: int, prefix: str = "") -> tuple[str, ...]:
    """Device ids of a node."""
    return tuple(f"{prefix}{node}-{i}" for i in positions or range(4))


def topology_text(node: str, prefix: str = "", machine: Any = MACHINE) -> str:
    """The annotation of a machine with ids of this node."""
    gpus = tuple(replace(g, uuid=f"{prefix}{node}-{i}") for i, g in enumerate(machine.gpus))
    return encode_topology(replace(machine, gpus=gpus))


def wide(n_devices: int, *, per_gpu: int | None = None) -> NodeTopology:
    """A machine of so many GPUs without NVLink, or of partitions of GPUs, `per_gpu` on each."""
    parents = [None if per_gpu is None else f"gpu-{i // per_gpu}" for i in range(n_devices)]
    places = range(n_devices)
    return NodeTopology(
        gpus=tuple(Gpu(model="NVIDIA A100", parent=parent) for parent in parents),
        links=tuple(tuple(NO_LINK for _ in places) for _ in places),
        pcie=tuple(
            tuple(PcieLevel.SELF if i == j else PcieLevel.SYS for j in places) for i in places
        ),
    )


def node(name: str, *, prefix: str = "", **changes: Any) -> NodeFacts:
    """A node of four A100s that serves them all."""
    facts = NodeFacts(
        name=name,
        uid=f"uid-{name}",
        zone="z1",
        allocatable={GPU: 4},
        topology=topology_text(name, prefix),
        devices=None,
        has_soft_taint=False,
        capacity={GPU: 4},
    )
    return replace(facts, **changes)


def bare(name: str, count: int = 4, **changes: Any) -> NodeFacts:
    """A node without topology."""
    return node(name, topology=None, allocatable={GPU: count}, **changes)


def report(
    *unhealthy: str, holds: tuple[DeviceHold, ...] = (), generation: int = 1, **more: Any
) -> str:
    """The text of a devices annotation."""
    sick = tuple(UnhealthyDevice(one, "XID 79") for one in unhealthy)
    return encode_devices(DevicesReport(generation, sick, holds, **more))


def hold(uid: str, *device_ids: str, name: str = "main", resource: str = GPU) -> DeviceHold:
    """A container's devices in a report."""
    return DeviceHold(uid, "default", f"pod-{uid}", name, resource, device_ids)


def plan_of(name: str, *device_ids: str, **containers: tuple[str, ...]) -> Plan:
    """A plan for one container, or for those that are named."""
    named = containers or {"main": device_ids}
    made = tuple(ContainerPlan(key, GPU, value) for key, value in named.items())
    union = tuple(dict.fromkeys(one for value in named.values() for one in value))
    return Plan(name, made, union, 1, 0.0)


def facts(uid: str, plan: Plan | str | None = None, **changes: Any) -> PodFacts:
    """An assigned pod's metadata."""
    text = encode_plan(plan) if isinstance(plan, Plan) else plan
    pod = PodFacts(uid, "default", f"pod-{uid}", "1", text, None, may_request=True)
    return replace(pod, **changes)


def content(uid: str, n_gpus: int, *, resource: str = GPU, **annotations: str) -> dict[str, Any]:
    """A pod's JSON."""
    wish = {"limits": {resource: n_gpus}, "requests": {resource: n_gpus}}
    return {
        "metadata": {
            "name": f"pod-{uid}",
            "namespace": "default",
            "uid": uid,
            "annotations": {f"coterie.gpu/{key}": value for key, value in annotations.items()},
        },
        "spec": {"containers": [container("main") | ({"resources": wish} if n_gpus else {})]},
    }


def whole(
    uid: str,
    node_name: str | None,
    n_gpus: int = 1,
    *device_ids: str,
    body: dict[str, Any] | None = None,
    **changes: Any,
) -> PodObject:
    """An assigned pod, read in full."""
    named = (ContainerDevices("main", GPU, device_ids),) if device_ids else ()
    pod = PodObject(
        uid=uid,
        namespace="default",
        name=f"pod-{uid}",
        resource_version="1",
        node_name=node_name,
        nominated_node=None,
        phase="Running",
        is_deleting=False,
        is_gated=False,
        priority=0,
        labels={},
        annotations={},
        devices=named,
        body=json.dumps(body or content(uid, n_gpus)).encode(),
    )
    return replace(pod, **changes)


def wish(
    uid: str, n_gpus: int = 1, *, resource: str = GPU, priority: int = 0, **annotations: str
) -> PodRequest:
    """What a pending pod requests."""
    made = content(uid, n_gpus, resource=resource, **annotations)
    made["spec"]["priority"] = priority
    return parse_pod(messages.WirePod.model_validate(made), (resource,))


def choose(cluster: LiveCluster, request: PodRequest, name: str, rater: Any) -> Any:
    """What bind would choose now: a plan or a refusal."""
    snapshot = cluster.snapshot_for(request)
    view = snapshot.nodes[name]
    return plan_bind(request, view, rater=rater, generation=snapshot.generation)


def free(cluster: LiveCluster, name: str) -> str:
    """The free devices of a node as digits, lowest position first, e.g. 1011."""
    view = cluster.snapshot.nodes[name]
    return "".join(str(view.free >> i & 1) for i in range(len(view.ids)))


def owners(cluster: LiveCluster, name: str) -> dict[str, tuple[str, str]]:
    """(state, owner) of each owned device of a node."""
    states = cluster.devices(name)
    return {one: (state.value, owner) for one, state, owner in states if owner is not None}


def shown(cluster: LiveCluster, name: str) -> Any:
    """What people see of a node."""
    return json.loads(json.dumps(cluster.as_json()))["nodes"][name]


def digest(cluster: LiveCluster, name: str) -> str | None:
    """The node's machine type; None where it is count-only."""
    machine = cluster.snapshot.nodes[name].node_class.machine
    return None if machine is None else machine.digest
