"""Pods of a node written down in a line: only what a test is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugin.machine import Resource
from plugin.pods import HeldDevices, NodePod, PodContainer
from tests.unit.plugin.machine_values import device, mig_device
from topology.annotations import ContainerPlan, Plan, encode_plan
from topology.model import names
from topology.select import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "APP",
    "GPU",
    "INIT",
    "MIG",
    "NODE",
    "SIDECAR",
    "app",
    "gpus",
    "holding",
    "init",
    "instances",
    "node_pod",
    "replicas",
    "sidecar",
]

GPU, MIG, NODE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "n1"
INIT, SIDECAR, APP = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.APP


def app(name: str, count: int = 0, **others: int) -> PodContainer:
    """An app container that requests GPUs; `mig` for MIG instances."""
    return _container(name, APP, count, others)


def init(name: str, count: int = 0, **others: int) -> PodContainer:
    """As `app`, a plain init container."""
    return _container(name, INIT, count, others)


def sidecar(name: str, count: int = 0, **others: int) -> PodContainer:
    """As `app`, an init container that goes on running."""
    return _container(name, SIDECAR, count, others)


def _container(
    name: str, role: ContainerRole, count: int, others: Mapping[str, int]
) -> PodContainer:
    counts = {GPU: count, MIG: others.get("mig", 0)}
    return PodContainer(name, role, {one: n for one, n in counts.items() if n})


def node_pod(
    name: str,
    *containers: PodContainer,
    plan: Mapping[str, Sequence[str]] | None = None,
    node: str = NODE,
    resource: str = GPU,
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> NodePod:
    """A pod that has just come, with the plan {container: ids}; its uid is its name's."""
    notes = dict(annotations or {})
    if plan is not None:
        parts = tuple(ContainerPlan(one, resource, tuple(ids)) for one, ids in plan.items())
        notes[names.PLAN] = encode_plan(Plan(node, parts, (), 1, 0.0))
    known = {
        "uid": f"uid-{name}",
        "namespace": "default",
        "name": name,
        "phase": "Pending",
        "is_deleting": False,
        "is_started": False,
    }
    return NodePod(**{**known, **fields}, annotations=notes, containers=containers)


def holding(
    pod: NodePod, container: str, *ids: str, resource: str = GPU, has_uid: bool = True
) -> HeldDevices:
    """What a container has."""
    uid = pod.uid if has_uid else None
    return HeldDevices(pod.namespace, pod.name, container, resource, tuple(sorted(ids)), uid)


def gpus(*uuids: str, resource: str = GPU) -> Resource:
    """A resource of whole GPUs."""
    return Resource(resource, tuple(device(one, i, one) for i, one in enumerate(uuids)))


def replicas(count: int, *uuids: str) -> Resource:
    """A resource of time-sliced GPUs."""
    devices = (
        device(f"{one}::{n}", i, one, replica=n)
        for i, one in enumerate(uuids)
        for n in range(count)
    )
    return Resource(GPU, tuple(devices))


def instances(*per_gpu: int) -> Resource:
    """A resource of MIG instances, so many on each GPU: `M<gpu>-<index>`."""
    devices = (
        device(
            f"M{gpu}-{i}", gpu, f"G{gpu}", partition=mig_device(f"M{gpu}-{i}", "1g.10gb", i, i, 0)
        )
        for gpu, count in enumerate(per_gpu)
        for i in range(count)
    )
    return Resource(MIG, tuple(devices))
