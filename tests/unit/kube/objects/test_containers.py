"""Containers of a pod's spec, in order and role."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kube.errors import Unreadable
from kube.objects import devices_at, devices_of, quantities_at, read_containers
from topology.select import ContainerRole


def test_containers_come_in_the_order_of_their_admission():
    """Sidecars are init containers that always restart; an app container never is one."""
    spec = {
        "containers": [{"name": "main", "restartPolicy": "Always"}],
        "initContainers": [
            {"name": "setup"},
            {"name": "side", "restartPolicy": "Always"},
            {"name": "once", "restartPolicy": "OnFailure"},
        ],
    }
    assert [(one.name, one.role) for one in read_containers(spec)] == [
        ("setup", ContainerRole.INIT),
        ("side", ContainerRole.SIDECAR),
        ("once", ContainerRole.INIT),
        ("main", ContainerRole.APP),
    ]


@pytest.mark.parametrize("spec", [{"containers": [{}]}, {"initContainers": [{"name": ""}]}])
def test_a_container_has_a_name(spec, check_message):
    """It is what plans and statuses refer to."""
    with pytest.raises(Unreadable) as caught:
        list(read_containers(spec))
    check_message(caught.value)


@pytest.mark.parametrize(
    ("name", "is_extended"),
    [
        ("nvidia.com/gpu", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/x", False),
    ],
)
def test_extended_resources_have_a_domain_of_their_own(name, is_extended):
    """Kubernetes' own rule."""
    assert devices_at({"limits": {name: "2"}}, "limits") == ({name: 2} if is_extended else {})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ()),
        ({"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}, ()),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 0, "a.b/c": "0"}}}]}, ()),
        (
            {
                "initContainers": [{"resources": {"limits": {"rdma/hca": 1, "amd.com/gpu": 1}}}],
                "containers": [{"resources": {"limits": {"rdma/hca": 1}}}],
            },
            ("amd.com/gpu", "rdma/hca"),
        ),
    ],
)
def test_devices_of_a_pod(spec, expected):
    """Of all containers, without those of which there are none."""
    assert devices_of({"spec": spec}) == expected


def test_a_request_without_a_limit_is_refused(check_message):
    """As the API server does."""
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": 1}}}
    with pytest.raises(Unreadable) as caught:
        devices_of({"spec": {"containers": [container]}})
    check_message(caught.value)


def test_quantities_are_read_by_resource():
    """Exactly, and none where there is no such key."""
    resources = {"requests": {"cpu": "500m", "x/y": 2}}
    assert quantities_at(resources, "requests") == {"cpu": Fraction(1, 2), "x/y": 2}
    assert (quantities_at({}, "limits"), devices_at({}, "limits")) == ({}, {})


def test_what_is_no_quantity_is_named(check_message):
    """With its place, so that a person finds it."""
    with pytest.raises(Unreadable) as caught:
        quantities_at({"requests": {"cpu": "much"}}, "requests")
    check_message(caught.value)
    with pytest.raises(Unreadable) as caught:
        devices_at({"limits": {"x/y": "1.5"}}, "limits", where="here: ")
    check_message(caught.value)
