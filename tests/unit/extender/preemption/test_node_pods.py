"""What pods take and where they are in each other's way, from API JSON."""

from __future__ import annotations

from typing import Any

import pytest

from extender.preemption import read_pod_on_node
from extender.preemption.node_pods import PodOnNode, is_entangled
from kube.errors import Unreadable


def sized(name: str = "main", /, **requests: Any) -> dict[str, Any]:
    """A container with these requests."""
    return {"name": name, "resources": {"requests": requests}}


def pod(spec: dict[str, Any], status: dict[str, Any] | None = None, **meta: Any) -> PodOnNode:
    """Read a pod."""
    names = {"uid": "u1", "namespace": "ns", "name": "p", **meta}
    return read_pod_on_node({"metadata": names, "spec": spec, "status": status or {}})


def running(**fields: Any) -> dict[str, Any]:
    """Status of a pod whose only container is resized."""
    return {"containerStatuses": [{"name": "main", **fields}]}


SIDECAR = {"restartPolicy": "Always"}
REQUESTS = [
    pytest.param({"containers": [{"name": "main"}]}, {}, {"pods": 1}, id="nothing but its place"),
    pytest.param(
        {"containers": [sized(cpu="1500m"), sized(cpu=1, memory="1Ki")]},
        {},
        {"cpu": 2500, "memory": 1024, "pods": 1},
        id="app containers add up",
    ),
    pytest.param(
        {"containers": [sized(cpu="0.0001")]}, {}, {"cpu": 1, "pods": 1}, id="a part is rounded up"
    ),
    pytest.param(
        {"containers": [sized(cpu=2)], "initContainers": [sized(cpu=3), sized(cpu=1)]},
        {},
        {"cpu": 3000, "pods": 1},
        id="init containers run before, one by one",
    ),
    pytest.param(
        {
            "containers": [sized(cpu=2)],
            "initContainers": [sized(cpu=3), sized(cpu=1) | SIDECAR, sized(cpu=5)],
        },
        {},
        {"cpu": 6000, "pods": 1},
        id="an init container runs beside the sidecars before it",
    ),
    pytest.param(
        {"containers": [sized(cpu=2)], "initContainers": [sized(cpu=1) | SIDECAR]},
        {},
        {"cpu": 3000, "pods": 1},
        id="a sidecar runs beside the apps",
    ),
    pytest.param(
        {
            "containers": [sized(cpu=2, memory=7, gpu=4)],
            "resources": {"requests": {"cpu": 1, "hugepages-2Mi": "2Mi", "gpu": 9}},
        },
        {},
        {"cpu": 1000, "memory": 7, "hugepages-2Mi": 2097152, "gpu": 4, "pods": 1},
        id="requests of the whole pod stand for its containers, where pods may have them",
    ),
    pytest.param(
        {"containers": [sized(cpu=2)], "overhead": {"cpu": "250m", "memory": "8"}},
        {},
        {"cpu": 2250, "memory": 8, "pods": 1},
        id="overhead comes on top",
    ),
    pytest.param(
        {"containers": [sized(cpu=2)]},
        running(resources={"requests": {"cpu": 1}}, allocatedResources={"cpu": 4}),
        {"cpu": 4000, "pods": 1},
        id="a resize under way takes the most of all",
    ),
    pytest.param(
        {"containers": [sized(cpu=9)]},
        running(resources={"requests": {"cpu": 1}}, allocatedResources={"cpu": 2})
        | {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]},
        {"cpu": 2000, "pods": 1},
        id="a resize that cannot be takes nothing",
    ),
    pytest.param(
        {"containers": [sized(cpu=9)]},
        running(allocatedResources={"cpu": 20}),
        {"cpu": 9000, "pods": 1},
        id="a container that does not run takes what it requests",
    ),
]


@pytest.mark.parametrize(("spec", "status", "expected"), REQUESTS)
def test_a_pod_takes_its_effective_request(spec, status, expected):
    """Counted otherwise than kube-scheduler does, a pod would not fit where we made room."""
    assert pod(spec, status).requests == expected


def test_the_rest_of_a_pod_is_read_where_the_api_has_it():
    """Each field decides who is evicted."""
    found = pod(
        {"priority": -5, "containers": []},
        {"startTime": "1970-01-01T00:01:00Z", "phase": "Running"},
        labels={"app": "x"},
        deletionTimestamp="2026-11-21T06:00:00Z",
    )
    assert (found.uid, found.namespace, found.name) == ("u1", "ns", "p")
    assert (found.priority, found.labels, found.started_s) == (-5, {"app": "x"}, 60.0)
    assert found.is_deleting
    assert not found.has_ended
    young = pod({}, {"phase": "Failed"})
    assert (young.priority, young.started_s, young.is_deleting) == (0, None, False)
    assert young.has_ended


def port(number: int, **more: Any) -> dict[str, Any]:
    """A spec with a host port."""
    ports = [{"containerPort": 80}, {"hostPort": number, **more}]
    return {"containers": [{"name": "main", "ports": ports}]}


APART: dict[str, Any] = {
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}
}
DISK = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
SPREAD = {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}
SOFT = {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}
CONFIG = {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}
CLAIM = {"resourceClaims": [{"name": "nic"}]}


@pytest.mark.parametrize(
    ("spec", "other", "expected"),
    [
        pytest.param({}, {}, False, id="two plain pods"),
        pytest.param(port(80), port(80), True, id="the same host port"),
        pytest.param(port(80), port(81), False, id="another host port"),
        pytest.param(port(80, protocol="UDP"), port(80), False, id="another protocol"),
        pytest.param(
            {"initContainers": port(80)["containers"]}, port(80), True, id="a sidecar's host port"
        ),
        pytest.param({}, APART, True, id="the other keeps pods away"),
        pytest.param(APART, {}, True, id="the pod keeps away from others"),
        pytest.param(SPREAD, {}, True, id="the pod must be spread"),
        pytest.param(SOFT, SPREAD, False, id="only the pod's own spreading counts"),
        pytest.param(DISK, DISK, True, id="both attach volumes"),
        pytest.param(DISK, CONFIG, False, id="only one attaches volumes"),
        pytest.param(CLAIM, CLAIM, True, id="both have resource claims"),
    ],
)
def test_entangled_pods_are_reported(spec, other, expected):
    """A victim that the scheduler needed for such a reason must stay one."""
    assert is_entangled(pod(spec), pod(other)) is expected


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({"containers": [sized(cpu="many")]}, {}, id="quantity"),
        pytest.param({"overhead": {"cpu": []}}, {}, id="list"),
        pytest.param({}, {"startTime": "noon"}, id="time"),
    ],
)
def test_what_cannot_be_read_is_named(spec, status, check_message):
    """A node whose pods cannot be counted is left out, with the reason."""
    with pytest.raises(Unreadable) as caught:
        pod(spec, status)
    check_message(caught.value)
