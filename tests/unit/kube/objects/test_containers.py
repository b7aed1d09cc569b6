"""Containers of a pod's spec, in order and role."""

from __future__ import annotations

import pytest

from kube.errors import Unreadable
from kube.objects import is_extended_resource, read_containers
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


def test_resources_are_given_as_they_stand():
    """Quantities are read by their users."""
    resources = {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "500m"}}
    (one,) = read_containers({"containers": [{"name": "a", "resources": resources}]})
    assert (one.limits, one.requests) == (resources["limits"], resources["requests"])
    (bare,) = read_containers({"containers": [{"name": "a"}]})
    assert (bare.limits, bare.requests) == ({}, {})


@pytest.mark.parametrize("spec", [{"containers": [{}]}, {"initContainers": [{"name": ""}]}])
def test_a_container_has_a_name(spec):
    """It is what plans and statuses refer to."""
    with pytest.raises(Unreadable, match="name is absent or empty, expected a string"):
        list(read_containers(spec))


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
    assert is_extended_resource(name) is is_extended
