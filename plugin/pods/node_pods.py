"""The pods of this node, as the kubelet lists them, and what their plans say.

Read from the answer to GET /pods, a v1.PodList as JSON (pkg/kubelet/server/server.go, `getPods`,
1.36.3). Fields that are not needed may be anything; an invalid one that is needed raises
`KubeletError`, for the whole list: the devices of a pod that is left out would seem free.

A plan for another node, or text that is no plan, is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from kube.objects import Pod, devices_at, pod_fields, read_containers
from plugin.errors import KubeletError
from topology.annotations import decode_plan
from topology.errors import CodecError, quote
from topology.model import names, object_at, objects_at, parse_object, text_at, texts_at

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kube.objects import ContainerSpec
    from topology.annotations import Plan
    from topology.select import ContainerRole

__all__ = [
    "NodePod",
    "PodContainer",
    "plan_problem",
    "planned_ids",
    "pod_plan",
    "read_node_pods",
    "unlisted_pod",
]


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container and what it requests of plugins: devices by resource name, those above 0 only."""

    name: str
    role: ContainerRole
    devices: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod(Pod):
    """A pod of this node.

    `containers` in the kubelet's order: init containers and sidecars as they stand, then the
    others. `is_started`: status.startTime is set, so the kubelet has taken it in and the API server
    knows. `annotations` as they are. `is_listed`: not `unlisted_pod`. `runtime_class` is the name
    of its RuntimeClass; empty: the node's default runtime.
    """

    is_started: bool
    annotations: Mapping[str, str]
    containers: tuple[PodContainer, ...]
    is_listed: bool = True
    runtime_class: str = ""


def unlisted_pod(uid: str, namespace: str, name: str) -> NodePod:
    """A pod that is known from its devices alone, since the kubelet's list cannot be read."""
    return NodePod(
        uid=uid,
        namespace=namespace,
        name=name,
        phase="",
        is_deleting=False,
        is_started=True,
        annotations={},
        containers=(),
        is_listed=False,
    )


def read_node_pods(body: bytes) -> tuple[NodePod, ...]:
    """Read the kubelet's answer, in its order. Raises `KubeletError`.

    >>> read_node_pods(b'{"kind":"PodList","items":null}')
    ()
    """
    try:
        content = parse_object(body)
        kind = text_at(content, "kind")
        if kind != "PodList":
            msg = f"kubelet's pods: kind is {quote(kind)}, expected 'PodList'"
            raise KubeletError(msg)
        return tuple(_read_pod(one) for one in objects_at(content, "items"))
    except Unreadable as error:
        msg = f"kubelet's pods: {error}"
        raise KubeletError(msg) from error


def _read_pod(content: Mapping[str, object]) -> NodePod:
    meta, status = object_at(content, "metadata"), object_at(content, "status")
    spec = object_at(content, "spec")
    try:
        claimed = _claimed(object_at(status, "extendedResourceClaimStatus"))
        return NodePod(
            **pod_fields(content),
            is_started=status.get("startTime") is not None,
            annotations=texts_at(meta, "annotations"),
            containers=tuple(_read_container(one, claimed) for one in read_containers(spec)),
            runtime_class=text_at(spec, "runtimeClassName"),
        )
    except Unreadable as error:
        title = f"{meta.get('namespace')}/{meta.get('name')}"
        msg = f"pod {quote(title)}: {error}"
        raise Unreadable(msg) from error


def _claimed(status: Mapping[str, object]) -> Collection[tuple[str, str]]:
    """Containers and their resources that come from a ResourceClaim: no plugin is called for those.

    (cm/devicemanager/manager.go, `isDRAExtendedResource`.)
    """
    return {
        (text_at(one, "containerName"), text_at(one, "resourceName"))
        for one in objects_at(status, "requestMappings")
    }


def _read_container(one: ContainerSpec, claimed: Collection[tuple[str, str]]) -> PodContainer:
    """Extended resources in `limits` are what the device manager goes by.

    (pkg/kubelet/cm/devicemanager/manager.go, `allocateContainerResources`.)
    """
    resources = object_at(one.content, "resources")
    devices = devices_at(resources, "limits", where=f"container {quote(one.name)}: ")
    pairs = ((key, n) for key, n in devices.items() if n > 0 and (one.name, key) not in claimed)
    return PodContainer(one.name, one.role, dict(pairs))


def pod_plan(pod: NodePod, node: str) -> Plan | None:
    """The plan that a pod carries for this node; None where there is none that can be used."""
    found = _read_plan(pod.annotations.get(names.PLAN))
    return None if found is None or isinstance(found, str) or found.node != node else found


def plan_problem(pod: NodePod, node: str) -> str | None:
    """Why a pod's plan cannot be used, for people; None where it can, or there is none."""
    found = _read_plan(pod.annotations.get(names.PLAN))
    if found is None or isinstance(found, str):
        return found
    return None if found.node == node else f"plan is for node {found.node}, expected {node}"


def planned_ids(pod: NodePod, container: str, *, resource: str, node: str) -> tuple[str, ...]:
    """The ids planned for a container, in the plan's order; empty where it has no plan."""
    plan = pod_plan(pod, node)
    for one in () if plan is None else plan.containers:
        if one.name == container and one.resource == resource:
            return one.ids
    return ()


@lru_cache(maxsize=1024)
def _read_plan(text: str | None) -> Plan | str | None:
    """A plan, or why it is none.

    Each text is read once; a node has far fewer pods than 1024 (110 by the kubelet's default).
    """
    if text is None:
        return None
    try:
        return decode_plan(text)
    except CodecError as error:
        return str(error)
