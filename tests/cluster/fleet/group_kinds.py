"""Groups as the controllers of their kinds make them, from the manifests that users write.

Says which Jobs the JobSet controller makes of a JobSet, and which pods the controllers of
LeaderWorkerSet and PyTorchJob make: names, labels, annotations and owners. Those controllers are
not there; the Job controller is, and pods of Jobs are left to it.

Sources: labelAndAnnotateObject and constructJob (jobset@08dfbdfd,
pkg/controllers/jobset_controller.go), pod_webhook.go (lws@060ab4d), the labels of the Kubeflow
training operator (v1.9, pkg/apis/kubeflow.org/v1/common_types.go).
"""

from __future__ import annotations

import copy
import hashlib
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["jobs_of", "pods_of"]

_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"
_KUBEFLOW = "training.kubeflow.org/"
_NAMESPACE = "default"


def jobs_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A Job itself, or the Jobs of a JobSet, in the order of their global index."""
    if manifest["kind"] == "Job":
        return [copy.deepcopy(dict(manifest))]
    name, replicated = manifest["metadata"]["name"], manifest["spec"]["replicatedJobs"]
    n_jobs = sum(one["replicas"] for one in replicated)
    jobs: list[dict[str, Any]] = []
    for one in replicated:
        for index in range(one["replicas"]):
            job_name = f"{name}-{one['name']}-{index}"
            marks = {
                "jobset-name": name,
                "jobset-uid": _uid(name),
                "replicatedjob-name": one["name"],
                "replicatedjob-replicas": str(one["replicas"]),
                "restart-attempt": "0",
                "global-replicas": str(n_jobs),
                "job-index": str(index),
                "job-key": _sha1(f"{_NAMESPACE}/{job_name}"),
                "job-global-index": str(len(jobs)),
                "group-name": "default",
                "group-replicas": str(n_jobs),
                "job-group-index": str(len(jobs)),
            }
            job = {"apiVersion": "batch/v1", "kind": "Job", **copy.deepcopy(one["template"])}
            template = job["spec"]["template"]
            for made in (job, template):
                _mark(made, {f"{_JOBSET}{key}": text for key, text in marks.items()})
            job["metadata"] |= {"name": job_name, "namespace": _NAMESPACE}
            template["spec"]["subdomain"] = name
            jobs.append(job)
    return jobs


def pods_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pods of a LeaderWorkerSet, leaders first, or of a PyTorchJob, in order of rank."""
    make = {"LeaderWorkerSet": _leader_and_workers, "PyTorchJob": _replicas}
    return list(make[manifest["kind"]](manifest))


def _leader_and_workers(manifest: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """The leader is a pod of one StatefulSet, the workers those of another, which it owns."""
    name, parts = manifest["metadata"]["name"], manifest["spec"]["leaderWorkerTemplate"]
    leader, worker = parts.get("leaderTemplate", parts["workerTemplate"]), parts["workerTemplate"]
    size = parts["size"]
    for index in range(size):
        for replica in range(manifest["spec"]["replicas"]):
            leader_name = f"{name}-{replica}"
            pod_name = f"{leader_name}-{index}" if index else leader_name
            pod = _pod(worker if index else leader, pod_name, leader_name if index else name)
            pod["metadata"]["labels"] |= {
                f"{_LWS}name": name,
                f"{_LWS}group-index": str(replica),
                f"{_LWS}worker-index": str(index),
                f"{_LWS}group-key": _sha1(f"{_NAMESPACE}/{leader_name}"),
                "apps.kubernetes.io/pod-index": str(index or replica),
                "statefulset.kubernetes.io/pod-name": pod_name,
            }
            pod["metadata"]["annotations"] |= {f"{_LWS}size": str(size)}
            if index:
                pod["metadata"]["annotations"] |= {f"{_LWS}leader-name": leader_name}
            yield pod


def _replicas(manifest: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """A master and its workers, each role with indices of its own."""
    name = manifest["metadata"]["name"]
    for role, one in manifest["spec"]["pytorchReplicaSpecs"].items():
        for index in range(one["replicas"]):
            pod = _pod(one["template"], f"{name}-{role.lower()}-{index}", name, "PyTorchJob")
            pod["spec"]["restartPolicy"] = one["restartPolicy"]
            pod["metadata"]["labels"] |= {
                f"{_KUBEFLOW}job-name": name,
                f"{_KUBEFLOW}operator-name": "pytorchjob-controller",
                f"{_KUBEFLOW}replica-type": role.lower(),
                f"{_KUBEFLOW}replica-index": str(index),
            }
            if role == "Master":
                pod["metadata"]["labels"] |= {f"{_KUBEFLOW}job-role": "master"}
            yield pod


def _pod(
    template: Mapping[str, Any], name: str, owner: str, kind: str = "StatefulSet"
) -> dict[str, Any]:
    version = "apps/v1" if kind == "StatefulSet" else "kubeflow.org/v1"
    owners = [
        {
            "apiVersion": version,
            "kind": kind,
            "name": owner,
            "uid": _uid(f"{kind}/{owner}"),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(dict(template))}
    _mark(pod, {})
    pod["metadata"] |= {"name": name, "namespace": _NAMESPACE, "ownerReferences": owners}
    return pod


def _mark(made: dict[str, Any], marks: Mapping[str, str]) -> None:
    """Put labels and equal annotations on an object, or a template, that may have none."""
    metadata = made.setdefault("metadata", {})
    for field in ("labels", "annotations"):
        metadata[field] = {**metadata.get(field, {}), **marks}


def _uid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
