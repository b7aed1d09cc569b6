"""The pods that a manifest creates, also of controllers that have several templates.

What it answers: for each pod template of a manifest the pod that comes of it, by the rules of
`kube.objects.manifests`, what the template is called among the others, and how many of its pods
there are at a time. Beside Kubernetes' own controllers it knows those of other projects in `PLACES`
by where they have templates; it checks nothing else of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kube.errors import Unreadable
from kube.objects.manifests import TEMPLATES, check_placed, kind_of, pod_count, pod_of
from topology.errors import quote
from topology.model import as_object, object_at, text_at, whole_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["KINDS", "PLACES", "PodTemplate", "pods_of"]

_RAY = {"head": "headGroupSpec.template", "": "workerGroupSpecs.*.template"}
PLACES: Mapping[str, Mapping[str, str]] = {
    "JobSet": {"": "spec.replicatedJobs.*.template.spec.template"},
    "LeaderWorkerSet": {
        "leader": "spec.leaderWorkerTemplate.leaderTemplate",
        "worker": "spec.leaderWorkerTemplate.workerTemplate",
    },
    "MPIJob": {"": "spec.mpiReplicaSpecs.*.template"},
    "PyTorchJob": {"": "spec.pytorchReplicaSpecs.*.template"},
    "RayCluster": {role: f"spec.{path}" for role, path in _RAY.items()},
    "RayJob": {role: f"spec.rayClusterSpec.{path}" for role, path in _RAY.items()},
    "RayService": {role: f"spec.rayClusterConfig.{path}" for role, path in _RAY.items()},
    "TFJob": {"": "spec.tfReplicaSpecs.*.template"},
}
"""Where a kind has pod templates, by what the template is called; `*` stands for each entry of a
list or an object, whose name or key then says what it is called (the Go types of
jobset.x-k8s.io/v1alpha2, leaderworkerset.x-k8s.io/v1, kubeflow.org/v1 and ray.io/v1)."""

KINDS = frozenset({"Pod", *TEMPLATES, *PLACES})
"""Kinds whose pods are known."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A template's pod. `role` is empty where the manifest has one template alone.

    `n_pods` None: one on each node, as a DaemonSet has.
    """

    role: str
    path: str
    pod: object
    n_pods: int | None


@dataclass(frozen=True, slots=True)
class _Found:
    """A template, and the objects on the way to it, outermost first."""

    role: str
    path: str
    template: Mapping[str, object]
    way: Sequence[Mapping[str, object]]


def pods_of(manifest: Mapping[str, object]) -> Sequence[PodTemplate]:
    """The pods of a manifest; one for what `pod_of` reads. Raises `Unreadable`."""
    kind = kind_of(manifest)
    if kind in PLACES:
        return _several(kind, manifest)
    if kind not in KINDS:
        known = ", ".join(["Pod", *sorted(KINDS - {"Pod"})])
        msg = f"kind is {quote(kind)}, expected {known} (of another kind: its pod template)"
        raise Unreadable(msg)
    return (PodTemplate("", TEMPLATES.get(kind, ""), pod_of(manifest), pod_count(manifest)),)


def _several(kind: str, content: Mapping[str, object]) -> Sequence[PodTemplate]:
    found = [
        one
        for role, path in PLACES[kind].items()
        for one in _find(content, path.split("."), _Found(role, "", content, ()))
        if one.template
    ]
    if not found:
        places = " or ".join(PLACES[kind].values())
        msg = f"{places} of the {kind} is missing, expected a pod template"
        raise Unreadable(msg)
    own = object_at(content, "metadata")
    placed = {name for one in found for name in _annotations(one.template)}
    check_placed(own, placed, where=f"of the {kind}", path=found[0].path)
    for one in found:
        for on_way in one.way[1:]:
            check_placed(
                object_at(on_way, "metadata"),
                _annotations(one.template),
                where=f"above {one.path}",
                path=one.path,
            )
    has_leader = any(one.role == "leader" for one in found)
    return [
        PodTemplate(one.role, one.path, _pod(one, own), _count(one, has_leader=has_leader))
        for one in found
    ]


def _find(parent: Mapping[str, object], keys: Sequence[str], at: _Found) -> Iterator[_Found]:
    """Each template behind the keys, seen from `parent`, which `at` leads to."""
    if not keys:
        yield _Found(at.role, at.path, parent, at.way)
        return
    key, way = keys[0], (*at.way, parent)
    path = f"{at.path}.{key}" if at.path else key
    if keys[1:2] != ["*"]:
        yield from _find(object_at(parent, key), keys[1:], _Found(at.role, path, parent, way))
        return
    value = parent.get(key)
    if isinstance(value, list):
        for i, entry in enumerate(cast("list[object]", value)):
            one = as_object(entry, f"{path}[{i}]")
            role = text_at(one, "name") or text_at(one, "groupName") or str(i)
            yield from _find(one, keys[2:], _Found(role, f"{path}[{i}]", parent, way))
    else:
        for role in object_at(parent, key):
            one = object_at(object_at(parent, key), role)
            yield from _find(one, keys[2:], _Found(role, f"{path}.{role}", parent, way))


def _pod(found: _Found, own: Mapping[str, object]) -> object:
    """The template as a pod in the controller's namespace, named like it where it has no name."""
    name = "-".join(part for part in (text_at(own, "name"), found.role.lower()) if part)
    inherited = {"namespace": own.get("namespace", "default"), "name": name}
    return {**found.template, "metadata": {**inherited, **object_at(found.template, "metadata")}}


def _annotations(template: Mapping[str, object]) -> Mapping[str, object]:
    return object_at(object_at(template, "metadata"), "annotations")


def _count(found: _Found, *, has_leader: bool) -> int:
    """The product of what the objects on the way say; one where one says nothing."""
    n_pods = 1
    for one in found.way:
        if "workerGroupSpecs" in found.path and one is found.way[-1]:
            n_pods *= _ray_workers(one)
        elif one.get("replicas") is not None:
            n_pods *= whole_at(one, "replicas")
        if "parallelism" in one or "completions" in one:
            n_pods *= pod_count({"kind": "Job", "spec": one}) or 0
        if found.role == "worker" and one.get("size") is not None:
            n_pods *= whole_at(one, "size") - has_leader
    return n_pods


def _ray_workers(group: Mapping[str, object]) -> int:
    """Pods of a worker group (ray.io/v1; KubeRay, utils.GetWorkerGroupDesiredReplicas)."""
    if group.get("suspend") is True:
        return 0
    least, n_replicas = whole_at(group, "minReplicas"), whole_at(group, "replicas")
    if group.get("maxReplicas") is not None:
        n_replicas = min(n_replicas, whole_at(group, "maxReplicas"))
    return max(n_replicas, least) * (whole_at(group, "numOfHosts") or 1)
