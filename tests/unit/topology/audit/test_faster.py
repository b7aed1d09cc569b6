"""Pods that may be on faster GPUs than they use."""

from dataclasses import replace

import pytest

from tests.kubectl_lists import RESOURCE, kube_list, node, pod
from topology.audit import audit, read_cluster
from topology.audit.faster import MAX_RULES
from topology.model import Gpu, names
from topology.recordings import load_recording

SLOW = {"gpu": "l4"}
TAINTED = [{"key": "a", "effect": "NoSchedule"}]
NONE = {"coterie.gpu/affinity": "none"}


def candidates(nodes, *pods):
    """Which pod could go where."""
    report = audit(read_cluster(kube_list(*nodes), kube_list(*pods)))
    return [(one.pod, one.other_node) for one in report.faster_candidates]


def fleet(**slow):
    """A node with fast GPUs, and one with slower ones."""
    return node("fast", "dgx-h100"), node("slow", "8x-l4", **{"labels": SLOW, **slow})


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(pod("p", "fast", 1, plan=(0,)), True, id="one GPU"),
        pytest.param(pod("p", "fast", 2, plan=(0, 1)), False, id="two GPUs may use the links"),
        pytest.param(
            pod("p", "fast", 2, plan=(0, 1), annotations=NONE), True, id="two GPUs, affinity none"
        ),
        pytest.param(
            pod("p", "fast", 1, plan=(0,), spec={"nodeSelector": {"gpu": "h100"}}),
            False,
            id="names its model",
        ),
        pytest.param(
            pod("p", "fast", 1, plan=(0,), spec={"nodeSelector": SLOW}), True, id="names the other"
        ),
        pytest.param(pod("p", "slow", 1, plan=(0,)), False, id="is there already"),
    ],
)
def test_who_is_a_candidate(one, expected):
    """One that gains nothing from links and may run on GPUs of lesser worth that are free."""
    assert candidates(fleet(), one) == ([("p", "slow")] if expected else [])


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param({"taints": TAINTED}, id="a taint"),
        pytest.param({"allocatable": {RESOURCE: 7}}, id="free GPUs that are not known"),
        pytest.param({"labels": {names.WORTH: "100"}}, id="a worth that the administrator set"),
    ],
)
def test_nodes_that_are_no_place(slow):
    """The pod could not, or should not, go there."""
    assert candidates(fleet(**slow), pod("p", "fast", 1, plan=(0,))) == []


def test_a_free_gpu_is_counted_once():
    """All candidates could move at once; those on the GPUs of most worth come first."""
    busy = pod("busy", "slow", 7, plan=range(7))
    v100 = node("old", "dgx-1-v100")
    full = pod("full", "old", 8, plan=range(8))
    pods = [pod("p", "fast", 1, plan=(0,)), pod("q", "fast", 1, plan=(1,)), busy, full]
    assert candidates((*fleet(), v100), *pods) == [("p", "slow")]


def test_a_place_must_have_gpus_enough():
    """A pod of two GPUs passes a node with one over, where a pod of one may go."""
    other = node("slow2", "8x-l4")
    pods = [
        pod("a", "fast", 2, plan=(0, 1), annotations=NONE),
        pod("b", "fast", 1, plan=(2,)),
        pod("busy", "slow", 7, plan=range(7)),
    ]
    assert candidates((*fleet(), other), *pods) == [("a", "slow2"), ("b", "slow")]


def test_links_count_where_the_worth_is_the_same():
    """A GPU without links is of less use to others."""
    linked = node("a", "8x-a100-pcie-pairs", labels={names.WORTH: "4"})
    plain = node("b", "8x-l4", labels={names.WORTH: "4"})
    assert candidates((linked, plain), pod("p", "a", 1, plan=(0,))) == [("p", "b")]
    assert candidates((linked, plain), pod("p", "b", 1, plan=(0,))) == []


def test_models_of_unknown_worth_are_left_out():
    """Nothing is known to be lesser than they, nor they than anything."""
    other = replace(load_recording("8x-l4"), gpus=(Gpu(model="some GPU"),) * 8)
    places = (node("fast", "dgx-h100"), node("x", other), node("slow", "8x-t4", taints=TAINTED))
    assert candidates(places, pod("p", "fast", 1, plan=(0,))) == []
    assert candidates((node("x", other), node("slow", "8x-t4")), pod("p", "x", 1, plan=(0,))) == []


def test_nodes_without_topology_are_left_out():
    """Which GPUs they have is not known."""
    assert candidates((node("a", None), node("slow", "8x-t4")), pod("p", "a", 1)) == []


def test_rules_are_bounded():
    """Each different set of rules is compared with all nodes; pods with further ones are left."""
    pods = [
        pod(f"p{k:03}", "fast", 1, spec={"nodeSelector": {"no": str(k)}}) for k in range(MAX_RULES)
    ]
    last = pod("q", "fast", 1)
    assert candidates(fleet(), *pods[1:], last) == [("q", "slow")]
    assert candidates(fleet(), *pods, last) == []
