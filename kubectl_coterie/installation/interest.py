"""What of nodes and pods is kept: what concerns placement, and of all others the names alone.

No environment, no command line and no label of a user's pod is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kube.objects import devices_at, parse_whole
from topology.annotations import USER_KEYS
from topology.model import object_at, objects_at, text_at, texts_at
from topology.model.names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kubectl_coterie.cluster import Object

__all__ = [
    "NVIDIA_LABELS",
    "has_gpus",
    "has_wishes",
    "is_nvidia_plugin",
    "named",
    "requests_devices",
    "slim_node",
    "slim_pod",
]

NVIDIA_LABELS = (
    ("app", "nvidia-device-plugin-daemonset"),
    ("app.kubernetes.io/name", "nvidia-device-plugin"),
    ("name", "nvidia-device-plugin-ds"),
    ("k8s-app", "nvidia-gpu-device-plugin"),
)
"""Of NVIDIA's device plugin: in the GPU operator, its chart, its static manifest and on GKE
(docs/migrate.md)."""
_FEATURE_DISCOVERY = "gpu-feature-discovery-ctr"
"""Its pods have the plugin's labels in NVIDIA's chart, and serve no GPU."""
_PROGRAM_LABELS = ("app.kubernetes.io/part-of", *(key for key, _ in NVIDIA_LABELS))
_NODE_LABELS = ("coterie.gpu/", "kubernetes.io/", "node.kubernetes.io/", "nvidia.com/", "topology.")
_META = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
_POD_SPEC = ("nodeName", "schedulerName", "priority", "runtimeClassName")
_POD_STATUS = ("phase", "reason", "startTime", "nominatedNodeName")
_CONDITION = ("type", "status", "reason", "lastTransitionTime")
"""Without the message, in which kube-scheduler names volumes."""
_NODE_STATUS = ("capacity", "allocatable", "conditions")
_NODE_INFO = (
    *("architecture", "containerRuntimeVersion", "kernelVersion", "kubeletVersion"),
    *("operatingSystem", "osImage"),
)
"""Without the ids of machine and system."""
_CONTAINER = ("name", "resources", "restartPolicy")


def is_nvidia_plugin(pod: Object) -> bool:
    """Whether a pod is NVIDIA's device plugin. Raises `Unreadable`."""
    labels = texts_at(object_at(pod, "metadata"), "labels")
    if not any(labels.get(key) == value for key, value in NVIDIA_LABELS):
        return False
    containers = objects_at(object_at(pod, "spec"), "containers")
    return any(text_at(one, "name") != _FEATURE_DISCOVERY for one in containers)


def has_wishes(pod: Object) -> bool:
    """Whether a pod has an annotation that Coterie would heed. Raises `Unreadable`."""
    annotations = texts_at(object_at(pod, "metadata"), "annotations")
    return any(key in annotations for key in USER_KEYS)


def has_gpus(node: Object, resources: Sequence[str]) -> bool:
    """Whether a node can give any of these resources. Raises `Unreadable`."""
    allocatable = object_at(object_at(node, "status"), "allocatable")
    return any((parse_whole(allocatable.get(resource, 0)) or 0) > 0 for resource in resources)


def requests_devices(pod: Object) -> bool:
    """Whether a pod requests any extended resource. Raises `Unreadable`."""
    spec = object_at(pod, "spec")
    containers = [*objects_at(spec, "initContainers"), *objects_at(spec, "containers")]
    return any(devices_at(object_at(one, "resources"), "limits") for one in containers)


def named(content: Object) -> Object:
    """The name of an object. Raises `Unreadable` where its metadata are no object."""
    return {"metadata": _some(object_at(content, "metadata"), _META)}


def slim_pod(pod: Object) -> Object:
    """What is kept of a pod; its name alone where it does not concern Coterie.

    Raises `Unreadable`.
    """
    metadata = object_at(pod, "metadata")
    labels, annotations = texts_at(metadata, "labels"), texts_at(metadata, "annotations")
    if not (
        requests_devices(pod)
        or is_nvidia_plugin(pod)
        or labels.get("app.kubernetes.io/part-of") == "coterie"
        or _ours(annotations)
    ):
        return named(pod)
    spec, status = object_at(pod, "spec"), object_at(pod, "status")
    containers = {
        key: [_some(one, _CONTAINER) for one in objects_at(spec, key)]
        for key in ("initContainers", "containers")
        if key in spec
    }
    return {
        "metadata": _some(metadata, _META)
        | {"labels": _some(labels, _PROGRAM_LABELS), "annotations": _ours(annotations)},
        "spec": _some(spec, _POD_SPEC) | containers,
        "status": _some(status, _POD_STATUS)
        | {"conditions": [_some(one, _CONDITION) for one in objects_at(status, "conditions")]},
    }


def slim_node(node: Object, also: Collection[str] = ()) -> Object:
    """What is kept of a node; its name alone where it has neither devices nor annotations of ours.

    Labels in `also` are kept of every node. Raises `Unreadable`.
    """
    metadata, status = object_at(node, "metadata"), object_at(node, "status")
    known = _some(metadata, _META)
    annotations = _ours(texts_at(metadata, "annotations"))
    given = texts_at(metadata, "labels")
    labels = _some(given, tuple(also))
    if not annotations and not devices_at(status, "capacity"):
        return {"metadata": known | ({"labels": labels} if labels else {})}
    labels |= {key: value for key, value in given.items() if key.startswith(_NODE_LABELS)}
    return {
        "metadata": known | {"labels": labels, "annotations": annotations},
        "spec": _some(object_at(node, "spec"), ("taints", "unschedulable")),
        "status": _some(status, _NODE_STATUS)
        | {"nodeInfo": _some(object_at(status, "nodeInfo"), _NODE_INFO)},
    }


def _some(content: Mapping[str, object], keys: Sequence[str]) -> dict[str, object]:
    return {key: content[key] for key in keys if key in content}


def _ours(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)}
