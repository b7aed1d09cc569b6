"""Nodes and pods, read from the API's JSON."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import Unreadable
from kube.objects import (
    ContainerDevices,
    NodeFacts,
    ObjectKey,
    PodFacts,
    pod_facts_reader,
    read_allocatable,
    read_key,
    read_node,
    read_pod,
)
from tests.edited_text import edited
from topology.taints import CORDONED

GPU = "nvidia.com/gpu"
READ_FACTS = pod_facts_reader((GPU, "amd.com/gpu"))

NODE = {
    "metadata": {
        "name": "n1",
        "uid": "u1",
        "labels": {"topology.kubernetes.io/zone": "z1", "coterie.gpu/worth": "2.5"},
        "annotations": {"coterie.gpu/topology": "{t}", "coterie.gpu/devices": "{d}", "x": "y"},
    },
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {
            "cpu": "128",
            "memory": "1Ti",
            "hugepages-1Gi": "0",
            "requests.kubernetes.io/x": "x",
            GPU: "8",
            "nvidia.com/mig-1g.10gb": "4k",
        },
        "capacity": {"cpu": "128", "pods": "110", GPU: "9", "nvidia.com/mig-1g.10gb": 0},
    },
}

POD = {
    "metadata": {
        "uid": "u1",
        "namespace": "ns",
        "name": "p1",
        "resourceVersion": "7",
        "labels": {"app": "a"},
        "annotations": {"coterie.gpu/plan": "{p}"},
    },
    "spec": {
        "nodeName": "n1",
        "priority": 10,
        "schedulingGates": [{"name": "g"}],
        "containers": [{"name": "main"}],
    },
    "status": {
        "phase": "Running",
        "nominatedNodeName": "n2",
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResourcesStatus": [
                    {
                        "name": GPU,
                        "resources": [
                            {"resourceID": "GPU-1", "health": "Healthy"},
                            {"resourceID": "GPU-2", "health": "Unhealthy"},
                        ],
                    },
                    {"name": "claim:c/r", "resources": [{"resourceID": "d/p/x"}]},
                    {"name": "other.com/none"},
                ],
            },
            {"name": "plain"},
        ],
    },
}


def changed(content, path, value):
    """A copy in which one field differs; `None` leaves it out."""
    return json.loads(edited(json.dumps(content), path, value))


def test_a_node_has_the_facts_that_placement_needs():
    """Extended resources only, annotations as they stand, the zone and the worth."""
    assert read_node(NODE) == NodeFacts(
        name="n1",
        uid="u1",
        zone="z1",
        allocatable={GPU: 8, "nvidia.com/mig-1g.10gb": 4000},
        topology="{t}",
        devices="{d}",
        has_soft_taint=False,
        capacity={GPU: 9, "nvidia.com/mig-1g.10gb": 0},
        worth="2.5",
    )


def test_a_node_keeps_the_labels_that_are_named():
    """None where none are; those of domains are others."""
    content = changed(NODE, "metadata.labels", {"a": "1", "b": "2", "c": "3"})
    read = read_node(content, ("a",), ("b", "x"))
    assert (read.domains, read.labels) == ({"a": "1"}, {"b": "2"})


def test_a_bare_node_is_a_node():
    """A node that has just been registered has no status and no annotation yet."""
    bare = read_node({"metadata": {"name": "n1", "uid": "u1"}})
    assert bare == NodeFacts("n1", "u1", "", {}, None, None, has_soft_taint=False)


def taint(key: str, effect: str) -> dict[str, str]:
    """A taint as the API server has it."""
    return {"key": key, "effect": effect}


def test_a_soft_taint_is_seen_among_others():
    """It sways kube-scheduler's own scores, so that candidates must not be thinned out."""
    taints = [{"effect": "NoExecute"}, {"effect": "PreferNoSchedule"}]
    assert read_node(changed(NODE, "spec.taints", taints)).has_soft_taint


@pytest.mark.parametrize(
    ("path", "value", "keys"),
    [
        ("spec.unschedulable", True, {"unschedulable"}),
        ("spec.unschedulable", False, set()),
        ("spec.taints", [taint("node.kubernetes.io/not-ready", "NoSchedule")], {"not-ready"}),
        ("spec.taints", [taint("node.kubernetes.io/unreachable", "NoExecute")], {"unreachable"}),
        ("spec.taints", [taint("node.kubernetes.io/not-ready", "PreferNoSchedule")], set()),
        ("spec.taints", [taint("node.kubernetes.io/of-somebody", "NoSchedule")], set()),
        ("spec.taints", [taint("nvidia.com/gpu", "NoSchedule")], set()),
    ],
)
def test_a_node_shows_by_which_taints_kubernetes_keeps_pods_off(path, value, keys):
    """Operators' own taints are for pods that do not tolerate them, and these are not known."""
    found = read_node(changed(NODE, path, value)).kubernetes_taints
    assert {one.key.removeprefix("node.kubernetes.io/") for one in found} == keys


def test_a_cordon_and_its_taint_are_one():
    """A controller adds the taint a moment after the cordon."""
    cordoned = changed(NODE, "spec", {"unschedulable": True})
    taints = [taint("node.kubernetes.io/unschedulable", "NoSchedule")]
    both = read_node(changed(cordoned, "spec.taints", taints))
    assert both.kubernetes_taints == read_node(cordoned).kubernetes_taints == (CORDONED,)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", None),
        ("metadata.uid", ""),
        ("metadata.annotations", {"a": 1}),
        ("status.allocatable", {GPU: "500m"}),
        ("status.allocatable", {GPU: "many"}),
        ("status.allocatable", {GPU: []}),
        ("status.capacity", {GPU: "500m"}),
        ("status.capacity", 7),
        ("spec.taints", [7]),
    ],
)
def test_a_node_without_a_needed_field_is_reported(path, value, check_message):
    """The field is named, to find its writer."""
    with pytest.raises(Unreadable) as caught:
        read_node(changed(NODE, path, value))
    check_message(caught.value)


def test_all_that_a_node_can_give_is_read_exactly(check_message):
    """Preemption checks CPUs and memory too."""
    content = {"status": {"allocatable": {"cpu": "3800m", "memory": "2Ki", GPU: 8}}}
    assert read_allocatable(content) == {"cpu": Fraction(19, 5), "memory": 2048, GPU: 8}
    assert read_allocatable({}) == {}
    values: tuple[object, ...] = ("much", [], None)
    for value in values:
        with pytest.raises(Unreadable) as caught:
            read_allocatable({"status": {"allocatable": {"cpu": value}}})
        check_message(caught.value)


def owner(spec_fields):
    """An entry of managedFields that set the given fields of the spec."""
    return {"manager": "m", "fieldsV1": {"f:spec": spec_fields}}


GPU_REQUEST = owner(
    {"f:containers": {'k:{"name":"main"}': {"f:resources": {"f:limits": {f"f:{GPU}": {}}}}}}
)
OTHER_REQUEST = owner(
    {"f:containers": {'k:{"name":"main"}': {"f:resources": {"f:limits": {"f:cpu": {}}}}}}
)
AS_INIT = owner(
    {
        "f:containers": {},
        "f:initContainers": {'k:{"name":"i"}': {"f:resources": {"f:requests": {f"f:{GPU}": {}}}}},
    }
)
FOR_THE_POD = owner({"f:containers": {}, "f:resources": {"f:limits": {f"f:{GPU}": {}}}})
AS_A_NAME = owner({"f:containers": {}, "f:nodeSelector": {f"f:{GPU}": {}}})
STATUS_ONLY = {"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}}


@pytest.mark.parametrize(
    ("entries", "may_request"),
    [
        pytest.param([GPU_REQUEST], True, id="a container requests"),
        pytest.param([OTHER_REQUEST], False, id="containers request other resources"),
        pytest.param([OTHER_REQUEST, GPU_REQUEST], True, id="one of several writers requests"),
        pytest.param([AS_INIT], True, id="an init container requests"),
        pytest.param([FOR_THE_POD], True, id="the pod as a whole requests"),
        pytest.param([AS_A_NAME], False, id="a label of that name requests nothing"),
        pytest.param([owner({"f:containers": 7})], False, id="fields of another shape"),
        pytest.param(None, True, id="no managedFields prove nothing"),
        pytest.param([], True, id="dropped managedFields prove nothing"),
        pytest.param([STATUS_ONLY], True, id="the spec's writer is not listed"),
        pytest.param([STATUS_ONLY, OTHER_REQUEST], False, id="the spec's writer is listed"),
        pytest.param([owner({"f:x": {f"f:{GPU}x": {}}})], True, id="no writer of containers"),
    ],
)
def test_managed_fields_prove_that_a_pod_requests_none(entries, may_request):
    """Only proof spares the read of the whole pod."""
    facts = READ_FACTS(changed(POD, "metadata.managedFields", entries) if entries else POD)
    assert facts.may_request == may_request


@pytest.mark.parametrize(
    ("deletion", "grace_s"),
    [
        pytest.param({}, None, id="it is not being deleted"),
        pytest.param({"deletionGracePeriodSeconds": 30}, 30, id="its kubelet stops it first"),
        pytest.param({"deletionGracePeriodSeconds": 0}, 0, id="it is removed at once"),
    ],
)
def test_what_a_deletion_leaves_the_containers(deletion, grace_s):
    """With 0 the pod goes before its kubelet knows."""
    time = {"deletionTimestamp": "2026-01-02T03:04:05Z"} if deletion else {}
    meta: Any = POD["metadata"]
    assert READ_FACTS({"metadata": {**meta, **time, **deletion}}).deletion_grace_s == grace_s


def test_marks_of_a_group_are_kept_of_pods_without_our_resources():
    """Of all others they would be a copy in memory that nothing reads."""
    read = pod_facts_reader((GPU,), ("size", "group-key"))
    meta = {"labels": {"group-key": "k", "app": "a"}, "annotations": {"size": "3"}}
    own: Any = POD["metadata"]
    bare = {"metadata": {**own, **meta}}
    assert read(bare).group_marks == {}
    without = changed(bare, "metadata.managedFields", [OTHER_REQUEST])
    assert read(without).group_marks == {"group-key": "k", "size": "3"}
    assert READ_FACTS(without).group_marks == {}


@pytest.mark.parametrize(("plan", "is_kept"), [('{"v":1}', True), ('{"group":{}}', False)])
def test_marks_of_a_group_are_kept_of_pods_that_were_placed_without_it(plan, is_kept):
    """They are not missing; of the others the plan names the group."""
    read = pod_facts_reader((GPU,), ("group-key",))
    own: Any = POD["metadata"]
    meta = {"labels": {"group-key": "k"}, "annotations": {"coterie.gpu/plan": plan}}
    assert read({"metadata": {**own, **meta}}).group_marks == (
        {"group-key": "k"} if is_kept else {}
    )


def test_facts_are_the_metadata():
    """A plan and an allocation are texts here; their codec judges them."""
    meta = {"metadata": POD["metadata"]}
    assert READ_FACTS(meta) == PodFacts("u1", "ns", "p1", "7", "{p}", None, may_request=True)
    content = changed(meta, "metadata.annotations", {"coterie.gpu/allocated": "{a}"})
    facts = READ_FACTS(content)
    assert (facts.plan, facts.allocated) == (None, "{a}")


@pytest.mark.parametrize("key", ["uid", "namespace", "name", "resourceVersion"])
@pytest.mark.parametrize("read", [READ_FACTS, read_pod])
def test_a_pod_without_identity_is_reported(key, read):
    """Every later step speaks of a pod by these."""
    with pytest.raises(Unreadable, match=f"metadata.{key} is absent or empty"):
        read(changed(POD, f"metadata.{key}", None))


def test_a_pod_is_read_whole():
    """Status, spec, and the body for the reader of its request."""
    pod = read_pod(POD)
    assert (pod.uid, pod.namespace, pod.name, pod.resource_version) == ("u1", "ns", "p1", "7")
    assert (pod.node_name, pod.nominated_node, pod.phase) == ("n1", "n2", "Running")
    assert (pod.is_deleting, pod.is_gated, pod.priority, pod.has_ended) == (
        False,
        True,
        10,
        False,
    )
    assert (pod.labels, pod.annotations) == ({"app": "a"}, {"coterie.gpu/plan": "{p}"})
    assert json.loads(pod.body) == POD


def test_device_ids_are_those_of_the_device_plugin():
    """Claims name devices of another kind; a resource without ids has none."""
    assert read_pod(POD).devices == (
        ContainerDevices("main", GPU, ("GPU-1", "GPU-2")),
        ContainerDevices("main", "other.com/none", ()),
    )


def test_a_bare_pod_is_a_pod():
    """A pod that has just been made has no node and no status."""
    pod = read_pod({"metadata": POD["metadata"]})
    assert (pod.node_name, pod.nominated_node, pod.phase, pod.devices) == (None, None, "", ())
    assert (pod.is_gated, pod.priority) == (False, 0)


@pytest.mark.parametrize(
    ("phase", "has_ended"),
    [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_ends_in_two_ways(phase, has_ended):
    """Only then are its devices free; a deleted pod's are not yet."""
    pod = read_pod(changed(POD, "status.phase", phase))
    assert pod.has_ended == has_ended
    assert read_pod(changed(POD, "metadata.deletionTimestamp", "2026-01-01T00:00:00Z")).is_deleting


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        *("metadata", "name", "uid", "spec", "taints"),
                        *("status", "allocatable", "capacity"),
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_nothing_but_the_documented_error_escapes(content):
    """A reader that raised anything else would end its watch."""
    if not isinstance(content, dict):
        return
    read_key(content)
    for read in (read_node, read_pod, READ_FACTS):
        try:
            read(content)
        except Unreadable:
            continue


def test_a_key_is_read_from_anything():
    """What cannot be read still has its own identity, and is removed when it goes."""
    assert read_key(POD) == ObjectKey("ns", "p1", "u1")
    assert read_key({"metadata": {"name": 7, "uid": "u"}}) == ObjectKey("", "", "u")
    assert read_key({"metadata": []}) == ObjectKey("", "", "")
