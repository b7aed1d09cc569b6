"""Lists of kubectl as values; what cannot be read is one sentence with list, object and field."""

import pytest

from tests.kubectl_lists import kube_list, node, pod
from topology.audit.cluster import (
    AuditClaimant,
    is_gpu_resource,
    read_cluster,
)
from topology.errors import ImportFormatError
from topology.select import ContainerRole

NO_PODS = kube_list()


def read_pod(one):
    """The pod of a list of one."""
    (found,) = read_cluster(kube_list(), kube_list(one)).pods
    return found


def test_a_node_has_its_gpus_and_annotations():
    """Other resources are of no interest here."""
    one = node("n1", "dgx-2", allocatable={"nvidia.com/gpu": 15, "cpu": "4"})
    (found,) = read_cluster(kube_list(one), NO_PODS).nodes
    assert found.name == "n1"
    assert found.allocatable == {"nvidia.com/gpu": 15}
    assert found.capacity == {"nvidia.com/gpu": 16}
    assert found.topology is not None
    assert found.devices is None


@pytest.mark.parametrize(("given", "expected"), [(8, 8), ("8", 8), ("1k", 1000), ("2M", 2_000_000)])
def test_quantities_are_numbers(given, expected):
    """The API server writes a thousand as 1k."""
    one = node("n1", None, allocatable={"nvidia.com/gpu": given})
    (found,) = read_cluster(kube_list(one), NO_PODS).nodes
    assert found.allocatable == {"nvidia.com/gpu": expected}
    assert found.unreadable == {}


@pytest.mark.parametrize("given", ["1.5", "-1", "1Ki", "9G", "", True, -1, 10**9])
def test_a_number_that_cannot_be_read_is_the_nodes_own_matter(given):
    """The other nodes are audited."""
    one = node("n1", None, allocatable={"nvidia.com/gpu": given})
    bad, good = read_cluster(kube_list(one, node("n2", None)), NO_PODS).nodes
    said = f"status.allocatable.nvidia.com/gpu is {given!r}, expected a whole number of devices"
    assert (bad.allocatable, bad.unreadable) == ({}, {"nvidia.com/gpu": said})
    assert good.unreadable == {}


@pytest.mark.parametrize(
    ("spec", "conditions", "expected"),
    [
        pytest.param({}, [], True, id="no condition"),
        pytest.param({}, [{"type": "Ready", "status": "True"}], True, id="ready"),
        pytest.param({}, [{"type": "DiskPressure", "status": "False"}], True, id="another one"),
        pytest.param({}, [{"type": "Ready", "status": "Unknown"}], False, id="lost"),
        pytest.param({"unschedulable": True}, [], False, id="cordoned"),
        pytest.param({"unschedulable": False}, [], True, id="uncordoned"),
    ],
)
def test_nodes_that_take_pods(spec, conditions, expected):
    """What is free on others helps no pod."""
    one = node("n1", None)
    one["spec"] |= spec
    one["status"]["conditions"] = conditions
    (found,) = read_cluster(kube_list(one), NO_PODS).nodes
    assert found.takes_pods is expected


def test_pods_with_claims_are_kept_by_name():
    """With GPUs beside them or without; not those that hold nothing."""
    spec = {"resourceClaims": [{"name": "gpu"}]}
    pods = [
        pod("a", "n1", 0, spec=spec),
        pod("b", "n1", 2, spec=spec),
        pod("c", "n1", 0, spec=spec, phase="Failed"),
        pod("d", None, 0, spec=spec),
        pod("e", "n1", 2, spec={"resourceClaims": []}),
    ]
    found = read_cluster(kube_list(), kube_list(*pods))
    assert found.claiming == (AuditClaimant("ml", "a", "n1"), AuditClaimant("ml", "b", "n1"))
    assert [one.name for one in found.pods] == ["b", "e"]


@pytest.mark.parametrize(
    "absent",
    [
        pytest.param(pod("p", None), id="pods on no node"),
        pytest.param(pod("p", "n1", 0), id="pods without GPUs"),
        pytest.param(pod("p", "n1", resource="nvidia.com/gpumem"), id="pods of other resources"),
    ],
)
def test_pods_that_are_not_audited(absent):
    """They are most of a cluster's, and have no GPUs."""
    assert read_cluster(kube_list(), kube_list(absent)).pods == ()


def test_containers_have_roles_and_counts():
    """A sidecar runs beside the apps, an init container before them."""
    resources = {"resources": {"requests": {"nvidia.com/gpu": 1}}}
    init = [{"name": "i", **resources}, {"name": "s", "restartPolicy": "Always", **resources}]
    found = read_pod(pod("p", "n1", {"a": 2, "b": 0}, init=init))
    assert [(one.name, one.role, one.requests) for one in found.containers] == [
        ("i", ContainerRole.INIT, {"nvidia.com/gpu": 1}),
        ("s", ContainerRole.SIDECAR, {"nvidia.com/gpu": 1}),
        ("a", ContainerRole.APP, {"nvidia.com/gpu": 2}),
    ]


@pytest.mark.parametrize(("phase", "expected"), [("Running", False), ("Failed", True)])
def test_pods_that_have_ended(phase, expected):
    """Their GPUs are free again."""
    assert read_pod(pod("p", "n1", phase=phase)).has_ended is expected


def test_devices_of_the_status_are_read():
    """Kubernetes 1.36 has them there; claims and other resources are left out."""
    one = pod("p", "n1", status=(0, 1))
    resources = one["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    resources.append({"name": "claim:x", "resources": [{"resourceID": "y"}]})
    (found,) = read_pod(one).status
    assert (found.container, found.resource) == ("main", "nvidia.com/gpu")
    assert found.ids == ("GPU-n1-0", "GPU-n1-1")


def test_null_is_as_good_as_absent():
    """Programs in Go write null for an empty list or map."""
    one = pod("p", "n1")
    one["spec"]["initContainers"] = one["spec"]["resourceClaims"] = None
    one["metadata"]["namespace"] = None
    assert read_pod(one).namespace == "default"
    assert read_cluster({"items": None}, {"items": None}).nodes == ()


def broken(value, *keys, of=pod):
    """An object with another value at a place."""
    one = place = of("x", "n1") if of is pod else of("x")
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return kube_list(one)


@pytest.mark.parametrize(
    ("nodes", "pods"),
    [
        pytest.param([], NO_PODS, id="no object"),
        pytest.param(kube_list(), {"kind": "Status"}, id="no list"),
        pytest.param({"items": 3}, NO_PODS, id="no array"),
        pytest.param(kube_list(7), NO_PODS, id="no item"),
        pytest.param(kube_list(pod("p", "n1")), NO_PODS, id="the lists exchanged"),
        pytest.param(kube_list({"metadata": {"labels": {}}}), NO_PODS, id="no name"),
        pytest.param(kube_list({"metadata": 5}), NO_PODS, id="no metadata"),
        pytest.param(kube_list(node("n1", None), node("n1", None)), NO_PODS, id="a node twice"),
        pytest.param(
            kube_list(),
            broken(
                [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1.5"}}}],
                "spec",
                "containers",
            ),
            id="half a GPU",
        ),
        pytest.param(broken("yes", "spec", "unschedulable", of=node), NO_PODS, id="no flag"),
        pytest.param(kube_list(), broken(4, "spec", "nodeName"), id="a number for a node"),
        pytest.param(
            kube_list(), broken([{"name": 1}], "spec", "containers"), id="a number for a container"
        ),
        pytest.param(
            kube_list(),
            broken(True, "spec", "containers"),  # noqa: FBT003 - no option, a value
            id="no containers",
        ),
    ],
)
def test_what_cannot_be_read_is_said(nodes, pods, check_message):
    """The list, the object, the field, its value and what was expected."""
    with pytest.raises(ImportFormatError) as caught:
        read_cluster(nodes, pods, nodes_name="N", pods_name="P")
    check_message(caught.value)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("nvidia.com/gpu", True),
        ("amd.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("nvidia.com/gpumem", False),
        ("cpu", False),
        ("gpu", False),
    ],
)
def test_resources_that_are_gpus(resource, expected):
    """Shares and partitions are, their memory is not."""
    assert is_gpu_resource(resource) is expected
