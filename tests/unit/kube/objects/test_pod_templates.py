"""Which pods a manifest creates, also where it has several templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kube.documents import read_yaml
from kube.errors import Unreadable
from kube.objects import pods_of
from topology.model import as_object

EXAMPLES = Path(__file__).resolve().parents[4] / "docs" / "examples"
SPEC: dict[str, Any] = {"containers": [{"name": "c"}]}
NVLINK = {"annotations": {"coterie.gpu/affinity": "nvlink"}}


def pods(kind: str, spec: object, **metadata: object) -> list[tuple[str, str, object, int | None]]:
    """Role, path, name and number of each pod of a manifest."""
    found = pods_of({"kind": kind, "metadata": {"name": "train", **metadata}, "spec": spec})
    return [(one.role, one.path, metadata_of(one.pod)["name"], one.n_pods) for one in found]


def metadata_of(pod: object) -> dict[str, Any]:
    """A pod's metadata."""
    assert isinstance(pod, dict)
    metadata: dict[str, Any] = pod["metadata"]
    return metadata


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("deployment", [("", "spec.template", "serve", 2)]),
        ("indexed-job", [("", "spec.template", "train-ranked", 2)]),
        (
            "jobset",
            [
                (
                    "workers",
                    "spec.replicatedJobs[0].template.spec.template",
                    "train-jobset-workers",
                    2,
                )
            ],
        ),
        ("kueue-job", [("", "spec.template", "train-queued", 1)]),
        (
            "leaderworkerset",
            [("worker", "spec.leaderWorkerTemplate.workerTemplate", "serve-workers-worker", 2)],
        ),
        ("pod", [("", "", "train", 1)]),
        (
            "pytorchjob",
            [
                ("Master", "spec.pytorchReplicaSpecs.Master.template", "train-pytorch-master", 1),
                ("Worker", "spec.pytorchReplicaSpecs.Worker.template", "train-pytorch-worker", 1),
            ],
        ),
        (
            "raycluster",
            [
                ("head", "spec.headGroupSpec.template", "ray-head", 1),
                ("gpu", "spec.workerGroupSpecs[0].template", "ray-gpu", 2),
            ],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_example_of_the_documentation(file, expected):
    """A user's first manifest is a copy of one of these."""
    text = (EXAMPLES / f"{file}.yaml").read_text(encoding="utf-8")
    found = pods_of(as_object(read_yaml(text), "file"))
    assert [(p.role, p.path, metadata_of(p.pod)["name"], p.n_pods) for p in found] == expected


def test_counts_are_multiplied_on_the_way():
    """Two jobs of three pods each; a group's leader is one of its size."""
    job = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": SPEC}}}
    assert [one[3] for one in pods("JobSet", {"replicatedJobs": [job]})] == [6]
    group = {"size": 4, "leaderTemplate": {"spec": SPEC}, "workerTemplate": {"spec": SPEC}}
    spec = {"replicas": 2, "leaderWorkerTemplate": group}
    assert [(one[0], one[3]) for one in pods("LeaderWorkerSet", spec)] == [
        ("leader", 2),
        ("worker", 6),
    ]


@pytest.mark.parametrize(
    ("group", "n_pods"),
    [
        ({}, 0),
        ({"replicas": 2}, 2),
        ({"replicas": 1, "numOfHosts": 4}, 4),
        ({"replicas": 1, "minReplicas": 2, "maxReplicas": 3}, 2),
        ({"minReplicas": 2, "numOfHosts": 2}, 4),
        ({"replicas": 5, "maxReplicas": 3}, 3),
        ({"replicas": 5, "suspend": True}, 0),
        ({"replicas": 5, "suspend": False}, 5),
    ],
)
def test_a_ray_worker_group_has_pods_as_kuberay_counts_them(group, n_pods):
    """A replica may be several hosts, and the autoscaler's bounds hold."""
    spec = {"workerGroupSpecs": [{"groupName": "w", "template": {"spec": SPEC}, **group}]}
    assert pods("RayCluster", spec) == [
        ("w", "spec.workerGroupSpecs[0].template", "train-w", n_pods)
    ]


def test_an_entry_without_a_name_is_called_by_its_place():
    """So that a message can name it."""
    job = {"template": {"spec": {"template": {"spec": SPEC}}}}
    assert pods("JobSet", {"replicatedJobs": [job]})[0][0] == "0"


@pytest.mark.parametrize(
    ("kind", "path"),
    [("RayJob", "spec.rayClusterSpec"), ("RayService", "spec.rayClusterConfig")],
)
def test_a_cluster_inside_of_another_kind(kind, path):
    """KubeRay's other kinds hold the specification of a RayCluster."""
    cluster = {"headGroupSpec": {"template": {"spec": SPEC}}}
    assert pods(kind, {path.removeprefix("spec."): cluster}) == [
        ("head", f"{path}.headGroupSpec.template", "train-head", 1)
    ]


def test_a_template_keeps_its_own_metadata():
    """The namespace is the controller's."""
    template = {"metadata": {"name": "own", **NVLINK}, "spec": SPEC}
    manifest = {
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"template": template}}},
    }
    pod = pods_of(manifest)[0].pod
    assert metadata_of(pod) == {"name": "own", "namespace": "ml", **NVLINK}


def test_an_annotation_above_the_templates_is_refused(check_message):
    """Nothing copies it to pods; one that some template has too is accepted."""
    worker = {"template": {"spec": SPEC}}
    spec: dict[str, Any] = {"pytorchReplicaSpecs": {"Worker": worker}}
    with pytest.raises(Unreadable) as caught:
        pods("PyTorchJob", spec, **NVLINK)
    check_message(caught.value)
    both = {"Worker": worker, "Master": {"template": {"metadata": NVLINK, "spec": SPEC}}}
    assert len(pods("PyTorchJob", {"pytorchReplicaSpecs": both}, **NVLINK)) == 2


def test_an_annotation_of_the_job_in_a_job_set_is_refused(check_message):
    """The Job has it, and its pods do not."""
    job = {"name": "w", "template": {"metadata": NVLINK, "spec": {"template": {"spec": SPEC}}}}
    with pytest.raises(Unreadable) as caught:
        pods("JobSet", {"replicatedJobs": [job]})
    check_message(caught.value)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("JobSet", {}),
        ("PyTorchJob", {"pytorchReplicaSpecs": 1}),
        ("JobSet", {"replicatedJobs": [1]}),
        ("Service", {}),
    ],
)
def test_what_has_no_template_is_refused(kind, spec, check_message):
    """In one sentence that says where it is expected."""
    with pytest.raises(Unreadable) as caught:
        pods(kind, spec)
    check_message(caught.value)


@pytest.mark.parametrize("api_version", ["v1", "batch/v1", ""])
def test_a_kind_is_known_without_its_group_or_with_it(api_version):
    """People leave it out; kubectl completes it."""
    manifest = {"kind": "Job", "apiVersion": api_version, "spec": {"template": {"spec": SPEC}}}
    assert len(pods_of(manifest)) == 1


def test_a_kind_of_another_api_group_is_another_kind(check_message):
    """Volcano has a Job too, with tasks."""
    manifest = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "spec": {"tasks": []}}
    with pytest.raises(Unreadable) as caught:
        pods_of(manifest)
    check_message(caught.value)
