"""Which controllers create the pods of a manifest one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from kube.objects import one_by_one


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
