"""`schedulerName.require` on a real API server: which pods it speaks of, and how."""

from __future__ import annotations

import itertools

import pytest

from tests.cluster.control.manifests import apply_manifest, await_so
from topology.model import names

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

PODS = "/api/v1/namespaces/default/pods"
SENTENCE = (
    "the pod requests GPUs and names no scheduler: set spec.schedulerName to coterie-scheduler"
)
PLAIN = {"name": "plain", "image": "none"}
GPU = PLAIN | {"name": "gpu", "resources": {"limits": {names.DEFAULT_RESOURCE: "2"}}}
CASES = [
    pytest.param({"containers": [GPU]}, True, id="GPUs"),
    pytest.param({"containers": [PLAIN, GPU]}, True, id="second container"),
    pytest.param({"containers": [PLAIN], "initContainers": [GPU]}, True, id="init container"),
    pytest.param(
        {"containers": [GPU], "schedulerName": "default-scheduler"}, True, id="the default's name"
    ),
    pytest.param({"containers": [GPU], "schedulerName": "coterie-scheduler"}, False, id="Coterie"),
    pytest.param({"containers": [GPU], "schedulerName": "volcano"}, False, id="another scheduler"),
    pytest.param({"containers": [GPU], "nodeName": "node-0"}, False, id="a node already"),
    pytest.param({"containers": [PLAIN]}, False, id="no GPU"),
]


@pytest.fixture(scope="module", params=["warn", "deny"])
def action(request, control_plane):
    """One of the two actions applied, and in force."""
    apply_manifest(
        control_plane, "scheduler-name-required", f"schedulerName.require={request.param}"
    )

    def is_in_force():
        answer = created(control_plane, {"containers": [GPU]})
        return (answer.status_code == 422) == (request.param == "deny") and SENTENCE in (
            answer.headers.get("Warning", "") + answer.text
        )

    await_so(is_in_force, request.param)
    return request.param


NAMES = itertools.count()


def created(plane, spec):
    """What creating such a pod is answered, without creating it."""
    pod = {"metadata": {"name": f"trial-{next(NAMES)}"}, "spec": spec}
    return plane.client.post(PODS, json=pod, params={"dryRun": "All"})


@pytest.mark.parametrize(("spec", "is_meant"), CASES)
def test_gpu_pods_without_a_scheduler_are_named(control_plane, action, spec, is_meant):
    """Those that `inject` would send to Coterie, and no other."""
    answer = created(control_plane, spec)
    if action == "deny":
        assert answer.status_code == (422 if is_meant else 201), answer.text
        assert (SENTENCE in answer.text) == is_meant
    else:
        assert answer.status_code == 201, answer.text
        assert (SENTENCE in answer.headers.get("Warning", "")) == is_meant


@pytest.mark.usefixtures("action")
def test_the_policy_type_checks(control_plane):
    """The API server's own check of every expression finds nothing."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    manager = control_plane.start_controller_manager("validatingadmissionpolicy-status-controller")

    def checked():
        policy = control_plane.client.get(f"{path}/coterie-scheduler-name-required").json()
        return policy["status"].get("typeChecking")

    try:
        await_so(lambda: checked() is not None, "type check")
        assert checked() == {}
    finally:
        manager.stop()
