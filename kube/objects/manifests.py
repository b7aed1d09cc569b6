"""The pod that a manifest creates.

What it answers: which pod comes of a manifest that people write, and how many at a time: that of a
pod, a bare pod template, or the template of one of Kubernetes' own controllers. Annotations of
Coterie that a controller has in its own metadata are refused, since nothing copies them to its
pods. It checks nothing else. Controllers of other projects have several templates: those are read
in `kube.objects.pod_templates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kube.errors import Unreadable
from topology.errors import quote
from topology.model import object_at, text_at, whole_at
from topology.model.names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["TEMPLATES", "check_placed", "kind_of", "pinned_reason", "pod_count", "pod_of"]

TEMPLATES: Mapping[str, str] = {
    "CronJob": "spec.jobTemplate.spec.template",
    "DaemonSet": "spec.template",
    "Deployment": "spec.template",
    "Job": "spec.template",
    "ReplicaSet": "spec.template",
    "StatefulSet": "spec.template",
}
"""Where each kind of controller has its pod template."""

API_GROUPS: Mapping[str, str] = {
    "Pod": "",
    **dict.fromkeys(("CronJob", "Job"), "batch"),
    **dict.fromkeys(("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"), "apps"),
    "JobSet": "jobset.x-k8s.io",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
    **dict.fromkeys(("MPIJob", "PyTorchJob", "TFJob"), "kubeflow.org"),
    **dict.fromkeys(("RayCluster", "RayJob", "RayService"), "ray.io"),
}
"""The API group of each kind whose pods are known; empty for the core group."""


def kind_of(manifest: Mapping[str, object]) -> str:
    """What a manifest is of; Pod where it does not say. Raises `Unreadable`.

    A kind of another API group than the known one is named with it.

    >>> kind_of({"kind": "Job", "apiVersion": "batch/v1"})
    'Job'
    >>> kind_of({"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1"})
    'Job.batch.volcano.sh'
    """
    kind = text_at(manifest, "kind") or "Pod"
    group, slash, _ = text_at(manifest, "apiVersion").rpartition("/")
    if not slash or API_GROUPS.get(kind) == group:
        return kind
    return f"{kind}.{group}"


def pod_of(manifest: object) -> object:
    """The pod of a manifest; without a namespace it is in `default`, as for kubectl.

    A pod of a controller without a name has the controller's. Raises `Unreadable`.
    """
    if not isinstance(manifest, dict):
        return manifest
    content = cast("dict[str, object]", manifest)
    kind = kind_of(content)
    if kind != "Pod":
        return _template(kind, content)
    if isinstance(content.get("metadata"), dict):
        return content | {"metadata": {"namespace": "default", **object_at(content, "metadata")}}
    return content


def pinned_reason(pod: Mapping[str, object]) -> str:
    """Why a new pod passes by every scheduler; empty where it does not. Raises `Unreadable`.

    One with a uid is not new: a scheduler may have written its node.
    """
    node = text_at(object_at(pod, "spec"), "nodeName")
    if not node or text_at(object_at(pod, "metadata"), "uid"):
        return ""
    return (
        f"spec.nodeName is {quote(node)}: no scheduler places it, and that node's kubelet chooses "
        "its GPUs"
    )


def pod_count(manifest: object) -> int | None:
    """How many pods a manifest has at a time; None for a DaemonSet, which has one on each node.

    The API server's defaults: one replica, and a Job's parallelism is one, and never more than its
    completions. Raises `Unreadable`.
    """
    if not isinstance(manifest, dict):
        return 1
    content = cast("dict[str, object]", manifest)
    kind = kind_of(content)
    if kind == "DaemonSet":
        return None
    spec = object_at(content, "spec")
    if kind == "CronJob":
        spec = object_at(object_at(spec, "jobTemplate"), "spec")
    if kind not in _COUNTS:
        return 1
    counts = [whole_at(spec, key) for key in _COUNTS[kind] if spec.get(key) is not None]
    # A work queue has parallelism and no completions; completions alone run one by one.
    return min(counts) if spec.get(_COUNTS[kind][0]) is not None else min([1, *counts])


_COUNTS: Mapping[str, tuple[str, ...]] = {
    "CronJob": ("parallelism", "completions"),
    "Deployment": ("replicas",),
    "Job": ("parallelism", "completions"),
    "ReplicaSet": ("replicas",),
    "StatefulSet": ("replicas",),
}


def check_placed(
    own: Mapping[str, object], placed: Collection[str], *, where: str, path: str
) -> None:
    """Refuse Coterie's annotations in metadata that no pod gets, unless the template has them too.

    `placed` are the annotations of the template at `path`. Raises `Unreadable`.
    """
    for name in object_at(own, "annotations"):
        if name.startswith(PREFIX) and name not in placed:
            msg = (
                f"annotation {quote(name)} is in the metadata {where} and has no effect "
                f"there, expected in {path}.metadata.annotations"
            )
            raise Unreadable(msg)


def _template(kind: str, content: Mapping[str, object]) -> object:
    path = TEMPLATES.get(kind)
    if path is None:
        known = ", ".join(TEMPLATES)
        msg = f"kind is {quote(kind)}, expected Pod, {known} (of another kind: its pod template)"
        raise Unreadable(msg)
    template = content
    for key in path.split("."):
        template = object_at(template, key)
    if not template:
        msg = f"{path} of the {kind} is missing, expected a pod template"
        raise Unreadable(msg)
    own, metadata = object_at(content, "metadata"), object_at(template, "metadata")
    check_placed(own, object_at(metadata, "annotations"), where=f"of the {kind}", path=path)
    inherited = {"namespace": own.get("namespace", "default"), "name": own.get("name", "")}
    return {**template, "metadata": {**inherited, **metadata}}
