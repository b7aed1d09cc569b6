"""The kubelet's list of pods: which fields are read, and what is refused."""

from __future__ import annotations

import json

import pytest

from plugin.errors import KubeletError
from plugin.pods import NodePod, PodContainer, planned_ids, read_node_pods
from plugin.pods.node_pods import plan_problem
from topology.select import ContainerRole

META = {"uid": "u1", "namespace": "ns", "name": "p"}
GPU = "nvidia.com/gpu"


def pod(*, meta=None, spec=None, status=None):
    """A pod as the API has it."""
    return {
        "metadata": META | (meta or {}),
        "spec": {"containers": [container("main")]} | (spec or {}),
        "status": {"phase": "Pending"} | (status or {}),
    }


def container(name, limits=None, **more):
    """A container as the API has it."""
    return {"name": name, "resources": {"limits": limits or {}}} | more


def read(*pods):
    """What is read of the kubelet's answer with these pods."""
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}
    return read_node_pods(json.dumps(body).encode())


def test_a_pod_is_read():
    """What identity goes by, and nothing else."""
    annotations = {"coterie.gpu/plan": "{}", "kubernetes.io/config.source": "api"}
    (found,) = read(pod(meta={"annotations": annotations, "labels": {"a": "b"}}))
    assert found == NodePod(
        uid="u1",
        namespace="ns",
        name="p",
        phase="Pending",
        is_deleting=False,
        labels={"a": "b"},
        is_started=False,
        annotations=annotations,
        containers=(PodContainer("main", ContainerRole.APP, {}),),
    )


def test_the_runtime_class_is_read():
    """By that of its own pod the plugin knows which runtime gave it the machine."""
    (found,) = read(pod(spec={"runtimeClassName": "nvidia"}))
    assert found.runtime_class == "nvidia"
    assert read(pod())[0].runtime_class == ""


def test_a_static_pod_needs_no_resource_version():
    """The kubelet lists one before the API server knows it."""
    (found,) = read(pod(meta={"annotations": {"kubernetes.io/config.source": "file"}}))
    assert (found.uid, found.labels) == ("u1", {})


def test_life_is_read_from_metadata_and_status():
    """A pod that ends, and one that the kubelet has taken in."""
    (found,) = read(
        pod(
            meta={"deletionTimestamp": "2026-01-01T00:00:00Z"},
            status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
        )
    )
    assert (found.phase, found.is_deleting, found.is_started) == ("Running", True, True)


def test_containers_are_in_the_order_of_admission():
    """Init containers and sidecars as they stand, then the others; each with its role."""
    (found,) = read(
        pod(
            spec={
                "containers": [container("a"), container("b", restartPolicy="Always")],
                "initContainers": [
                    container("i1"),
                    container("side", restartPolicy="Always"),
                    container("i2", restartPolicy="OnFailure"),
                ],
                "ephemeralContainers": [container("debug")],
            }
        )
    )
    assert [(one.name, one.role) for one in found.containers] == [
        ("i1", ContainerRole.INIT),
        ("side", ContainerRole.SIDECAR),
        ("i2", ContainerRole.INIT),
        ("a", ContainerRole.APP),
        ("b", ContainerRole.APP),
    ]


@pytest.mark.parametrize(
    ("resources", "devices"),
    [
        pytest.param({"limits": {GPU: "2"}}, {GPU: 2}, id="a limit"),
        pytest.param({"limits": {GPU: "0"}}, {}, id="none of it"),
        pytest.param({"requests": {GPU: "2"}}, {}, id="a request alone is not looked at"),
        pytest.param({"limits": {"cpu": "500m", "memory": "1Gi"}}, {}, id="native"),
        pytest.param(
            {"limits": {"hugepages-2Mi": "4Mi", "scheduling.kubernetes.io/foo": "1"}},
            {},
            id="kubernetes' own domain",
        ),
        pytest.param(
            {"limits": {GPU: "16", "nvidia.com/mig-1g.10gb": "1k", "x.org/nic": 3, "cpu": "x"}},
            {GPU: 16, "nvidia.com/mig-1g.10gb": 1000, "x.org/nic": 3},
            id="several, as quantities",
        ),
        pytest.param(None, {}, id="no resources"),
        pytest.param({"limits": None}, {}, id="null"),
    ],
)
def test_devices_are_extended_resources_in_limits(resources, devices):
    """So the device manager goes by them."""
    (found,) = read(pod(spec={"containers": [{"name": "main", "resources": resources}]}))
    assert found.containers[0].devices == devices


def test_devices_of_a_claim_are_no_request_to_the_plugin():
    """The kubelet passes over what DRA serves, container by container and resource by resource."""
    both = {GPU: "2", "example.com/nic": "1"}
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
    (found,) = read(
        pod(
            spec={"containers": [container("main", both), container("other", both)]},
            status={"extendedResourceClaimStatus": {"requestMappings": [mapping]}},
        )
    )
    assert [one.devices for one in found.containers] == [
        {"example.com/nic": 1},
        {GPU: 2, "example.com/nic": 1},
    ]


@pytest.mark.parametrize(
    "unknown",
    [
        {"meta": {"managedFields": "x", "generation": "?"}},
        {"spec": {"volumes": 7, "initContainers": None, "new": {}}},
        {"status": {"conditions": "x", "containerStatuses": 7, "phase": None}},
    ],
    ids=str,
)
def test_unused_fields_may_be_anything(unknown):
    """A later Kubernetes adds and changes what it likes."""
    (found,) = read(pod(**unknown))
    assert found.uid == "u1"


def test_pods_stay_in_the_kubelets_order():
    """And none is left out, ended and static ones neither."""
    pods = [pod(meta={"uid": f"u{i}"}, status={"phase": "Succeeded"}) for i in range(3)]
    assert [one.uid for one in read(*pods)] == ["u0", "u1", "u2"]
    assert read() == ()


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(pod(meta={"uid": ""}), id="no uid"),
        pytest.param(pod(meta={"name": None}), id="no name"),
        pytest.param(pod(meta={"namespace": 7}), id="namespace"),
        pytest.param(pod(meta={"annotations": {"a": 7}}), id="annotation"),
        pytest.param(pod(status={"phase": 7}), id="phase"),
        pytest.param(pod(spec={"containers": "x"}), id="containers"),
        pytest.param(pod(spec={"initContainers": [7]}), id="container"),
        pytest.param(pod(spec={"containers": [{"name": ""}]}), id="nameless"),
        pytest.param(
            pod(spec={"containers": [container("main", {GPU: "500m"})]}), id="half a device"
        ),
        pytest.param(pod(spec={"containers": [container("main", {GPU: [1]})]}), id="no quantity"),
        pytest.param(pod(spec={"containers": [container("main", {GPU: "٤"})]}), id="no ASCII"),
        pytest.param(pod(spec={"containers": [container("main", {GPU: ""})]}), id="no number"),
        pytest.param([], id="no object"),
    ],
)
def test_what_is_needed_must_be_there(broken, check_message):
    """One message names the pod, the field, its value; the whole list is refused."""
    with pytest.raises(KubeletError, match="kubelet's pods: ") as caught:
        read(pod(), broken)
    check_message(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b"{}",
        b'{"kind":"Status"}',
        b'{"kind":"PodList","items":7}',
        b"[" * 100_000,
        b"Unauthorized",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_no_list_of_pods_is_refused(body):
    """Whatever listens on the port: nothing but our own error escapes, of bounded length."""
    with pytest.raises(KubeletError) as caught:
        read_node_pods(body)
    assert len(str(caught.value)) < 400


def test_text_that_is_no_plan_is_reported():
    """Nothing is guessed of it, and people learn why it did not count."""
    (found,) = read(pod(meta={"annotations": {"coterie.gpu/plan": "{"}}))
    assert planned_ids(found, "main", resource=GPU, node="n1") == ()
    assert str(plan_problem(found, "n1")).startswith("plan text")
