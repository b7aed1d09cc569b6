"""What a pod requests: counts, roles, policy, and invalid requests."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from extender.errors import MalformedPod, UserError
from extender.protocol import PodRequest, is_packed, messages, parse_pod
from tests.unit.extender.pods import GPU, container, pod
from topology.annotations import Affinity, GroupWish, PlacementPolicy, Prefer, Strength
from topology.node_affinity import ANY_NODE, LabelRequirement, RequiredNodeAffinity
from topology.select import ContainerRequest, ContainerRole

APP, INIT, SIDECAR = ContainerRole.APP, ContainerRole.INIT, ContainerRole.SIDECAR


def parse(content, resources=(GPU,)) -> PodRequest:
    """Parse API JSON."""
    return parse_pod(messages.decode(messages.WirePod, json.dumps(content).encode()), resources)


def with_containers(*containers, init=()):
    """A pod of these containers."""
    content = pod()
    content["spec"] = {"containers": list(containers), "initContainers": list(init)}
    return content


def test_a_pod_is_read_whole():
    """Every field that later decides something."""
    content = pod("4", affinity="nvlink", policy="required", prefer="fastest")
    content["status"]["nominatedNodeName"] = "n7"
    request = parse(content)
    assert (request.uid, request.full_name) == ("u1", "default/pod-u1")
    assert request.containers == ("main",)
    assert request.size_gpus == 4
    assert request.nominated_node == "n7"
    assert request.shape is not None
    assert request.shape.resource == GPU
    assert request.shape.requests == (ContainerRequest("0", 4, APP),)
    assert request.shape.policy == PlacementPolicy(
        Affinity.NVLINK, Strength.REQUIRED, prefer=Prefer.FASTEST
    )


def test_what_a_pod_requires_of_its_node_makes_no_other_request():
    """Else verbs would answer for pods with a selector apart, which kube-scheduler holds itself."""
    content = pod("4")
    content["spec"]["nodeSelector"] = {"b": "2", "a": "1"}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    term = {
        "matchExpressions": [{"key": "c", "operator": "Exists"}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
    }
    required = {"nodeSelectorTerms": [term, {}]}
    node = preferred | {"requiredDuringSchedulingIgnoredDuringExecution": required}
    content["spec"]["affinity"] = {"nodeAffinity": node}
    request = parse(content)
    exists = LabelRequirement("c", "Exists", ())
    name = LabelRequirement("metadata.name", "In", ("n1",), is_field=True)
    assert request.node_affinity == RequiredNodeAffinity(
        (("a", "1"), ("b", "2")), ((exists, name), ())
    )
    assert request.has_soft_wishes
    plain = replace(parse(pod("4")), has_soft_wishes=True)
    assert plain.node_affinity == ANY_NODE
    assert (request, hash(request), request.shape) == (plain, hash(plain), plain.shape)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {}},
        {"affinity": {"nodeAffinity": {}}},
        {"affinity": {"nodeAffinity": None}, "nodeSelector": None},
    ],
)
def test_a_pod_that_requires_nothing_may_be_on_any_node(spec):
    """As an absent field."""
    content = pod("4")
    content["spec"] |= spec
    assert parse(content).node_affinity == ANY_NODE


def test_equal_affinities_are_one_object():
    """They are kept of thousands of pods, which a controller makes alike."""
    content = pod("4")
    content["spec"]["nodeSelector"] = {"a": "1"}
    assert parse(content).node_affinity is parse(content).node_affinity


def test_names_do_not_make_a_shape():
    """Pods that differ in names share their answers."""
    one, other = parse(pod(2, uid="a")), parse(with_containers(container("other", 2)))
    assert one.shape == other.shape
    assert other.containers == ("other",)


def test_containers_have_roles_and_those_without_gpus_do_not_count():
    """Init containers hand on, sidecars keep: the core must know which is which."""
    request = parse(
        with_containers(
            container("a", 2),
            container("log"),
            container("b", 1),
            init=[container("i", 4), container("s", 1, restartPolicy="Always")],
        )
    )
    assert request.containers == ("i", "s", "a", "b")
    assert request.shape is not None
    assert [(one.size, one.role) for one in request.shape.requests] == [
        (4, INIT),
        (1, SIDECAR),
        (2, APP),
        (1, APP),
    ]
    assert request.size_gpus == 4


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(pod(), id="no resources"),
        pytest.param(pod("0", affinity="nvlnk"), id="zero GPUs, whatever it annotates"),
        pytest.param(with_containers(), id="no containers"),
        pytest.param(pod(3) | {"spec": {"containers": None}}, id="null containers"),
    ],
)
def test_a_pod_without_gpus_has_no_shape(content):
    """It is none of our business."""
    assert parse(content).shape is None


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        ("4", 4),
        (4, 4),
        ("+4", 4),
        ("4000m", 4),
        ("4.0", 4),
        (4.0, 4),
        ("0.004k", 4),
        (".5k", 500),
        ("4e0", 4),
        ("40e-1", 4),
        ("512", 512),
    ],
)
def test_kubernetes_quantities_are_understood(quantity, size):
    """The API server accepts all of these for an extended resource."""
    assert parse(pod(quantity)).size_gpus == size


@pytest.mark.parametrize(
    "quantity",
    [
        *("-1", -1, "1500m", "0.5", 0.5, "513", "1Gi", "1e999", "9" * 30, "four", "", "4 ", "4x"),
        *("NaN", "4.00000000000000000000000000001", "3.99999999999999999999999999999"),
    ],
)
def test_other_counts_are_refused_by_name_and_value(quantity):
    """Negative, fractional, huge and meaningless counts."""
    with pytest.raises(MalformedPod) as caught:
        parse(pod(quantity))
    assert str(caught.value) == (
        f"container 'main' requests {quantity!r} of {GPU}, expected a whole number 0..512"
    )


def test_a_limit_alone_is_both():
    """The API server copies limits into requests."""
    content = with_containers({"name": "c", "resources": {"limits": {GPU: "2"}}})
    assert parse(content).size_gpus == 2


def test_a_request_alone_is_refused(check_message):
    """As the API server does: a manifest that is tried first must not look as if it would do."""
    with pytest.raises(MalformedPod) as caught:
        parse(with_containers({"name": "c", "resources": {"requests": {GPU: "2"}}}))
    check_message(caught.value)


def test_a_floor_may_be_set_for_sets_alone():
    """Containers without GPUs do not count."""
    content = with_containers(container("a", 4), container("log"), container("b", 2)) | FLOOR
    shape = parse(content).shape
    assert shape is not None
    assert shape.policy.min_bandwidth_gbytes_per_s == 40.0


def test_a_limit_other_than_the_request_is_refused(check_message):
    """Extended resources cannot be overcommitted."""
    content = with_containers(
        {"name": "c", "resources": {"limits": {GPU: 2}, "requests": {GPU: 1}}}
    )
    with pytest.raises(MalformedPod) as caught:
        parse(content)
    check_message(caught.value)


def test_two_gpu_resources_in_one_pod_are_the_users_error(check_message):
    """A set is chosen among devices of one resource; the API server lets such a pod through."""
    content = with_containers(
        container("a", 1), {"name": "b", "resources": {"limits": {"amd.com/gpu": "1"}}}
    )
    with pytest.raises(UserError) as caught:
        parse(content, (GPU, "amd.com/gpu"))
    check_message(caught.value)
    assert parse(content).containers == ("a",)


FLOOR = {"metadata": pod(4, min_bandwidth="40")["metadata"]}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(pod(4, affinity="nvlnk"), id="an unknown value"),
        pytest.param(pod(4, group_size="2"), id="a size without a group"),
        pytest.param(pod(4, group="g", group_size="0"), id="a group without members"),
        pytest.param(pod(4, afinity="nvlink"), id="an unknown key"),
        pytest.param(pod(1, min_bandwidth="40"), id="a floor for one GPU"),
        pytest.param(
            with_containers(container("a", 4), container("b", 1)) | FLOOR,
            id="a floor for one GPU beside a set",
        ),
        pytest.param(
            with_containers(container("a", 4), init=[container("i", 1)]) | FLOOR,
            id="a floor for an init container of one GPU",
        ),
    ],
)
def test_annotations_that_cannot_be_meant_are_the_users_errors(content, check_message):
    """Never a silent default; the message names the pod, the key and the value."""
    with pytest.raises(UserError) as caught:
        parse(content)
    assert str(caught.value).startswith("pod 'default/pod-u1': ")
    check_message(caught.value)


def test_a_pod_says_its_group_and_its_rank():
    """The rank is that of the first label of its like that it has."""
    wishes = {"group": "ring", "group_size": "4", "group_domain": "leaf"}
    wishes["group_policy"] = "required"
    content = pod(2, **wishes)
    content["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = "3"
    request = parse(content)
    assert request.group == GroupWish("ring", 4, "leaf", Strength.REQUIRED)
    assert request.rank == 3
    assert parse(pod(2, group="ring")).group == GroupWish("ring")
    assert parse(pod(2)).group is None
    assert parse(pod(2)).rank is None


@pytest.mark.parametrize("affinity", [{}, {"affinity": "none"}], ids=["absent", "none"])
def test_required_without_an_affinity_is_warned_about(affinity):
    """It reads like waiting for the best set, and waits for nothing."""
    (warning,) = parse(pod(2, policy="required", **affinity)).warnings
    assert "coterie.gpu/policy is 'required'" in warning
    assert "expected coterie.gpu/affinity nvlink, pcie-switch or numa" in warning
    assert parse(pod(2, policy="required", affinity="numa")).warnings == ()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(pod(1, affinity="nvlink"), True, id="one GPU"),
        pytest.param(pod(4, affinity="none"), True, id="a pod that does not care"),
        pytest.param(pod(4, min_bandwidth="40"), True, id="a floor without an affinity"),
        pytest.param(pod(4), False, id="four GPUs"),
        pytest.param(
            with_containers(container("a", 1), container("b", 2)), False, id="mixed sizes"
        ),
    ],
)
def test_some_pods_are_packed(content, expected):
    """For them only what is left behind counts."""
    shape = parse(content).shape
    assert shape is not None
    assert is_packed(shape) is expected
