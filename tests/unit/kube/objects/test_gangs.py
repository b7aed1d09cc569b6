"""How many pods of a Job, a JobSet or a PodGroup must run together."""

from __future__ import annotations

from typing import Any

import pytest

from kube.errors import Unreadable
from kube.objects import Gang, one_by_one, read_job_gang, read_job_set_gang, read_pod_group_gang

GPU = "nvidia.com/gpu"
META = {"uid": "u1"}
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
BY_SELECTOR = {"alpha.jobset.sigs.k8s.io/node-selector": "true"}


def job(status: Any = None, **spec: Any) -> dict[str, Any]:
    """An Indexed Job of four."""
    whole = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, **spec}
    return {"metadata": META, "spec": whole, "status": status}


def replicated(name: str, gpus: Any = 8, *, replicas: Any = 2, **more: Any) -> dict[str, Any]:
    """A replicated Job whose pods each have GPUs, or none."""
    limits = {} if gpus is None else {GPU: gpus}
    container = {"name": "main", "resources": {"limits": limits}}
    spec = {"parallelism": 3, "template": {"spec": {"containers": [container]}}}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def job_set(*jobs: dict[str, Any], status: Any = None, **more: Any) -> dict[str, Any]:
    """A JobSet."""
    annotations = more.pop("annotations", {})
    metadata = {**META, "annotations": annotations}
    return {"metadata": metadata, "spec": {"replicatedJobs": list(jobs), **more}, "status": status}


@pytest.mark.parametrize(
    ("content", "size"),
    [
        pytest.param(job(), 4, id="all run at once"),
        pytest.param(job(completions=8), None, id="one after the other"),
        pytest.param(job(completions=None), None, id="no completions"),
        pytest.param(job(completionMode="NonIndexed"), None, id="without an index"),
        pytest.param(job(completions=1, parallelism=1), None, id="one pod"),
        pytest.param(job(completions=None, parallelism=None), None, id="one by default"),
        pytest.param(job({"succeeded": 1}), 3, id="one has ended well"),
        pytest.param(
            job({"succeeded": 1, "failedIndexes": "0,2-3"}), 1, id="others have failed for good"
        ),
        pytest.param(job({"failedIndexes": "1"}), 3, id="one has failed for good"),
        pytest.param(job({"failedIndexes": "x,2-y"}), 4, id="no index"),
    ],
)
def test_a_job_is_a_gang_as_kubernetes_says(content, size):
    """Its controller creates all of its pods at once, and none again that is over."""
    assert read_job_gang(content) == Gang("u1", size)


@pytest.mark.parametrize(
    ("content", "size"),
    [
        pytest.param(job_set(replicated("w")), 6, id="replicas by parallelism"),
        pytest.param(
            job_set(replicated("d", None), replicated("w"), replicated("v", replicas=None)),
            9,
            id="pods with GPUs alone",
        ),
        pytest.param(job_set(replicated("d", 0)), None, id="no GPUs at all"),
        pytest.param(job_set(), None, id="no Job"),
        pytest.param(
            job_set(
                replicated("w"), status={"replicatedJobsStatus": [{"name": "w", "succeeded": 1}]}
            ),
            3,
            id="a Job has ended well",
        ),
        pytest.param(
            job_set(
                replicated("w"), status={"replicatedJobsStatus": [{"name": "w", "succeeded": 2}]}
            ),
            1,
            id="all have",
        ),
        pytest.param(
            job_set(replicated("w"), startupPolicy={"startupPolicyOrder": "AnyOrder"}),
            6,
            id="any order",
        ),
        pytest.param(
            job_set(replicated("w"), annotations=EXCLUSIVE | BY_SELECTOR),
            6,
            id="an exclusive topology by node selectors",
        ),
    ],
)
def test_a_job_set_counts_its_pods_with_gpus(content, size):
    """Those without are placed by kube-scheduler alone, and may have ended long ago."""
    assert read_job_set_gang(content, [GPU]) == Gang("u1", size)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(
            job_set(replicated("w"), startupPolicy={"startupPolicyOrder": "InOrder"}),
            "startupPolicyOrder is InOrder",
            id="in order",
        ),
        pytest.param(
            job_set(replicated("d"), replicated("w", dependsOn=[{"name": "d", "status": "Ready"}])),
            "spec.replicatedJobs[1] has dependsOn",
            id="one waits for another",
        ),
        pytest.param(
            job_set(replicated("w"), annotations=EXCLUSIVE), "exclusive-topology creates", id="all"
        ),
        pytest.param(
            job_set(
                replicated(
                    "w", template={"metadata": {"annotations": EXCLUSIVE}, "spec": {"template": {}}}
                )
            ),
            "exclusive-topology of spec.replicatedJobs[0].template",
            id="one Job",
        ),
    ],
)
def test_a_job_set_that_creates_its_pods_one_by_one_is_no_gang(content, why):
    """It would wait for ever for pods that are not created before others run."""
    gang = read_job_set_gang(content, [GPU])
    assert gang.size is None
    assert why in gang.one_by_one


@pytest.mark.parametrize(("least", "size"), [(3, 3), (1, None), (None, None)])
def test_a_pod_group_has_a_least_number(least, size):
    """One pod waits for no other."""
    content = {"metadata": META, "spec": {"minMember": least}}
    assert read_pod_group_gang(content) == Gang("u1", size)


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (read_job_gang, {"spec": {}}),
        (read_job_gang, job(parallelism="4")),
        (lambda one: read_job_set_gang(one, [GPU]), job_set(replicated("w", "many"))),
        (read_pod_group_gang, {"metadata": META, "spec": {"minMember": "3"}}),
    ],
)
def test_what_cannot_be_read_is_said(read, content):
    """A wrong type is no size."""
    with pytest.raises(Unreadable):
        read(content)


def lws(template, policy="LeaderReady"):
    """A LeaderWorkerSet."""
    return {
        "kind": "LeaderWorkerSet",
        "spec": {"startupPolicy": policy, "leaderWorkerTemplate": template},
    }


def dependent(annotations=None):
    """A JobSet whose second Job waits for the first one."""
    jobs = [{}, {"dependsOn": [{"name": "a"}]}]
    metadata = {"annotations": annotations or {}}
    return {"kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": jobs}}


ALONE: dict[str, Any] = {"workerTemplate": {}}
WITH_LEADER = ALONE | {"leaderTemplate": {}}


@pytest.mark.parametrize(
    ("manifest", "n_templates", "why"),
    [
        ({"kind": "StatefulSet", "spec": {}}, 1, "spec.podManagementPolicy is not Parallel"),
        ({"kind": "StatefulSet", "spec": {"podManagementPolicy": "Parallel"}}, 1, ""),
        (lws(ALONE), 1, "spec.startupPolicy is LeaderReady"),
        (lws(WITH_LEADER), 2, "spec.startupPolicy is LeaderReady"),
        (lws(WITH_LEADER), 1, ""),
        (lws(WITH_LEADER, policy="LeaderCreated"), 2, ""),
        (dependent(), 2, "spec.replicatedJobs[1] has dependsOn"),
        (dependent(), 1, ""),
        (
            dependent(annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}),
            1,
            (
                "annotation alpha.jobset.sigs.k8s.io/exclusive-topology creates the pods of a Job "
                "when their first one has a node"
            ),
        ),
        ({"kind": "JobSet", "spec": {"replicatedJobs": [{}, {}]}}, 2, ""),
        ({"kind": "Job", "spec": {}}, 1, ""),
        ({}, 1, ""),
    ],
)
def test_what_creates_members_one_by_one_is_said_of_a_manifest(manifest, n_templates, why):
    """Before any pod is there; those of one template come together after pods without GPUs."""
    assert one_by_one(manifest, n_templates=n_templates) == why
