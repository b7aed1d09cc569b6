"""The pods of this node, as the kubelet lists them.

Read from the answer to GET /pods, a v1.PodList as JSON (pkg/kubelet/server/server.go, `getPods`,
1.36.3). Fields that are not needed may be anything; an invalid one that is needed raises
`KubeletError`, for the whole list: the devices of a pod that is left out would seem free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.errors import Unreadable
from kube.objects import Pod, devices_at, pod_fields, read_containers
from plugin.errors import KubeletError
from topology.errors import quote
from topology.model import object_at, objects_at, parse_object, text_at, texts_at

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kube.objects import ContainerSpec
    from topology.select import ContainerRole

__all__ = ["NodePod", "PodContainer", "read_node_pods", "unlisted_pod"]


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
        _check_kind(content)
        return tuple(_read_pod(one) for one in objects_at(content, "items"))
    except Unreadable as error:
        msg = f"kubelet's pods: {error}"
        raise KubeletError(msg) from error


def _check_kind(content: Mapping[str, object]) -> None:
    kind = text_at(content, "kind")
    if kind != "PodList":
        msg = f"kind is {quote(kind)}, expected 'PodList'"
        raise Unreadable(msg)


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
