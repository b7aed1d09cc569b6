"""The pods that a manifest asks for: how many, with which names, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from extender.errors import QueryError
from extender.what_if import name_pods, read_pods
from tests.unit.extender.pods import GPU, pod


def job(**spec: Any) -> dict[str, Any]:
    """A Job whose pods request two GPUs."""
    template = {"spec": pod(2)["spec"]}
    metadata = {"name": "train", "namespace": "ml"}
    return {"kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


def misspelled() -> dict[str, Any]:
    """A pod that requests a resource by a wrong name."""
    limits = {"nvidia.com/gpus": "8"}
    return {**pod(), "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}


def pinned() -> dict[str, Any]:
    """A new pod that names its node; one with a uid may have it from a scheduler."""
    content = pod(2)
    del content["metadata"]["uid"]
    content["spec"]["nodeName"] = "n1"
    return content


def names(manifest: Any, count: int | None = None) -> list[str]:
    """The names of its pods."""
    read, number = read_pods(manifest, count, (GPU,), where="pods.0")
    return [one.full_name for one in name_pods(read, number)]


def test_a_pod_keeps_its_name_and_uid():
    """It may be one of the cluster that waits, with claims of its own."""
    (one,) = name_pods(*read_pods(pod(2, uid="u7"), None, (GPU,), where="pods.0"))
    assert one.request is not None
    assert (one.full_name, one.request.uid, one.is_evicted) == ("default/pod-u7", "u7", False)


def test_a_pod_that_was_bound_may_be_asked_of_again():
    """`kubectl get pod -o yaml` has its node, which a scheduler wrote."""
    manifest = pod(2)
    manifest["spec"]["nodeName"] = "n1"
    assert names(manifest) == ["default/pod-u1"]


def test_a_job_has_as_many_pods_as_run_at_a_time():
    """Each with a name of its own, since filter draws nodes by it; a count counts instead."""
    assert names(job(parallelism=2)) == ["ml/train-0", "ml/train-1"]
    assert names(job()) == ["ml/train"]
    assert len(names(job(parallelism=2), 5)) == 5


def test_pods_without_a_name_are_named():
    """After `generateName`, else after their place in the question."""
    manifest = pod(2)
    manifest["metadata"] = {"generateName": "train-"}
    assert names(manifest, 2) == ["default/train-0", "default/train-1"]
    del manifest["metadata"]["generateName"]
    assert names(manifest) == ["default/pods.0"]


def test_the_node_selector_is_kept():
    """It decides which nodes the pods are tried on."""
    manifest = pod(2)
    manifest["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-L4", "disk": "ssd"}
    for one in name_pods(*read_pods(manifest, 2, (GPU,), where="pods.0")):
        assert one.request is not None
        assert one.request.node_affinity.keys == {"disk", "nvidia.com/gpu.product"}
        assert one.is_selector_known


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        pytest.param(
            pod(),
            "pods.0.manifest: pod default/pod-u1 requests no GPU, expected one of nvidia.com/gpu",
            id="no GPU",
        ),
        pytest.param(
            misspelled(),
            "pods.0.manifest: pod default/pod-u1 requests none of the extender's GPUs, only "
            "'nvidia.com/gpus', expected one of nvidia.com/gpu; nearest: nvidia.com/gpu",
            id="misspelled",
        ),
        pytest.param({"kind": "RayCluster"}, "pods.0.manifest: kind is 'RayCluster'", id="kind"),
        pytest.param({"spec": {}}, "pods.0.manifest: request metadata", id="no pod"),
        pytest.param(pod("x"), "pods.0.manifest: container 'main' requests 'x'", id="no number"),
        pytest.param(
            {**pod(2), "spec": {**pod(2)["spec"], "nodeSelector": {"disk": 1}}},
            "pods.0.manifest: request spec.nodeSelector.disk is 1, expected a string",
            id="selector",
        ),
        pytest.param(
            pinned(),
            "pods.0.manifest: pod default/pod-u1: spec.nodeName is 'n1': no scheduler places it",
            id="past every scheduler",
        ),
        pytest.param(pod(2, affinity="x"), "pods.0.manifest: pod 'default/", id="annotation"),
        pytest.param(job(parallelism=0), "pods.0.manifest has 0 pods now", id="suspended"),
        pytest.param(
            job() | {"kind": "DaemonSet"}, "pods.0.count is missing, expected how many", id="daemon"
        ),
    ],
)
def test_what_asks_for_no_pod_is_refused(manifest, message):
    """With the place in the question, and what is expected."""
    with pytest.raises(QueryError) as caught:
        read_pods(manifest, None, (GPU,), where="pods.0")
    assert str(caught.value).startswith(message)
