"""How many pods of a workload must run together, as its object says it.

What it answers: the size of the gang of a Job, a JobSet or a PodGroup of coscheduling, or why its
pods are none. A Job is one where Kubernetes' own controller takes it for one (1.36,
pkg/controller/job/util/utils.go, IsGangSchedulingCandidate). Pods that have ended well, and indexes
that have failed for good, are not created again and do not count. A JobSet counts the pods with
devices of our resources (api/jobset/v1alpha2/jobset_types.go, jobset@0336a8f); one that creates its
pods one after the other is no gang, which `one_by_one` also says of a manifest. It makes no request
and knows no pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kube.objects.containers import devices_at, read_containers
from kube.objects.fields import list_at, needed_at, object_at, objects_at, text_at, whole_at
from kube.objects.manifests import pod_count

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Gang", "one_by_one", "read_job_gang", "read_job_set_gang", "read_pod_group_gang"]

_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"


@dataclass(frozen=True, slots=True)
class Gang:
    """What an object says of its pods; `uid` is the object's.

    `size` is how many pods must still run together, None where they are no gang. `one_by_one` says
    what makes its controller create them one after the other; empty where it does not.
    """

    uid: str
    size: int | None
    one_by_one: str = ""


def read_job_gang(content: Mapping[str, object]) -> Gang:
    """Read a Job (batch/v1): Indexed, with as many completions as parallel pods, above 1.

    Raises `Unreadable`.
    """
    uid = needed_at(object_at(content, "metadata"), "uid", where="metadata.")
    spec, status = object_at(content, "spec"), object_at(content, "status")
    n_pods = whole_at(spec, "parallelism")
    is_indexed = text_at(spec, "completionMode") == "Indexed"
    if not is_indexed or n_pods <= 1 or whole_at(spec, "completions") != n_pods:
        return Gang(uid, None)
    n_over = whole_at(status, "succeeded") + _count_indexes(text_at(status, "failedIndexes"))
    return Gang(uid, max(n_pods - n_over, 1))


def read_job_set_gang(content: Mapping[str, object], resources: Collection[str]) -> Gang:
    """Read a JobSet (jobset.x-k8s.io/v1alpha2) whose pods request the `resources`.

    Raises `Unreadable`.
    """
    metadata, spec = object_at(content, "metadata"), object_at(content, "spec")
    uid = needed_at(metadata, "uid", where="metadata.")
    why = _in_turn(spec) or _exclusive(metadata, spec)
    if why:
        return Gang(uid, None, why)
    status = object_at(content, "status")
    n_over = {
        text_at(one, "name"): whole_at(one, "succeeded")
        for one in objects_at(status, "replicatedJobsStatus")
    }
    n_all = n_open = 0
    for one in objects_at(spec, "replicatedJobs"):
        job = object_at(object_at(one, "template"), "spec")
        if not _has_devices(object_at(object_at(job, "template"), "spec"), resources):
            continue
        n_jobs = 1 if one.get("replicas") is None else whole_at(one, "replicas")
        n_pods = pod_count({"kind": "Job", "spec": job}) or 0
        n_all += n_jobs * n_pods
        n_open += max(n_jobs - n_over.get(text_at(one, "name"), 0), 0) * n_pods
    return Gang(uid, max(n_open, 1) if n_all > 1 else None)


def one_by_one(manifest: Mapping[str, object], *, n_templates: int) -> str:
    """What makes a controller create members one after the other; empty where it does not.

    Of a StatefulSet (apps/v1), a LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) and a JobSet whose
    members are of so many of its pod templates: those of one template may come together although
    others come before them. Raises `Unreadable`.
    """
    kind, spec = text_at(manifest, "kind"), object_at(manifest, "spec")
    if kind == "StatefulSet" and text_at(spec, "podManagementPolicy") != "Parallel":
        return "spec.podManagementPolicy is not Parallel"
    if kind == "LeaderWorkerSet" and text_at(spec, "startupPolicy") == "LeaderReady":
        has_leader = "leaderTemplate" in object_at(spec, "leaderWorkerTemplate")
        return "" if has_leader and n_templates == 1 else "spec.startupPolicy is LeaderReady"
    if kind == "JobSet":
        exclusive = _exclusive(object_at(manifest, "metadata"), spec)
        return exclusive or (_in_turn(spec) if n_templates > 1 else "")
    return ""


def read_pod_group_gang(content: Mapping[str, object]) -> Gang:
    """Read a PodGroup of coscheduling (scheduling.x-k8s.io/v1alpha1). Raises `Unreadable`."""
    uid = needed_at(object_at(content, "metadata"), "uid", where="metadata.")
    size = whole_at(object_at(content, "spec"), "minMember")
    return Gang(uid, size if size > 1 else None)


def _count_indexes(text: str) -> int:
    """How many indexes a Job's status names; intervals with both ends, as in `1,3-5,7`.

    >>> _count_indexes("1,3-5,7"), _count_indexes("")
    (5, 0)
    """
    count = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            count += int(last or first) - int(first) + 1
    return count


def _in_turn(spec: Mapping[str, object]) -> str:
    """What makes a JobSet's controller create Jobs only when others run."""
    if text_at(object_at(spec, "startupPolicy"), "startupPolicyOrder") == "InOrder":
        return "spec.startupPolicy.startupPolicyOrder is InOrder"
    for i, one in enumerate(objects_at(spec, "replicatedJobs")):
        if list_at(one, "dependsOn"):
            return f"spec.replicatedJobs[{i}] has dependsOn"
    return ""


def _exclusive(metadata: Mapping[str, object], spec: Mapping[str, object]) -> str:
    """What makes a JobSet's controller create pods of a Job only when its first one has a node."""
    if _is_exclusive(metadata):
        return f"annotation {_EXCLUSIVE} creates the pods of a Job when their first one has a node"
    for i, one in enumerate(objects_at(spec, "replicatedJobs")):
        if _is_exclusive(object_at(object_at(one, "template"), "metadata")):
            where = f"spec.replicatedJobs[{i}].template"
            return (
                f"annotation {_EXCLUSIVE} of {where} creates pods when their first one has a node"
            )
    return ""


def _is_exclusive(metadata: Mapping[str, object]) -> bool:
    annotations = object_at(metadata, "annotations")
    return _EXCLUSIVE in annotations and _NODE_SELECTOR not in annotations


def _has_devices(pod_spec: Mapping[str, object], resources: Collection[str]) -> bool:
    for one in read_containers(pod_spec):
        requirements = object_at(one.content, "resources")
        for key in ("limits", "requests"):
            found = devices_at(requirements, key)
            if any(found.get(resource, 0) > 0 for resource in resources):
                return True
    return False
