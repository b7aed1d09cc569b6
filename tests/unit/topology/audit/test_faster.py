"""Pods that may be on faster GPUs than they use."""

from dataclasses import replace

import pytest

from tests.kubectl_lists import RESOURCE, kube_list, node, pod
from topology.annotations import DeviceHold, DevicesReport
from topology.audit import audit, faster, read_cluster
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


def owned(kind):
    """A pod with an owner."""
    one = pod("p", "fast", 1, plan=(0,))
    one["metadata"]["ownerReferences"] = [{"kind": kind, "name": "x"}]
    return one


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


def test_rules_are_bounded(monkeypatch):
    """Each different set of rules is compared with all nodes; pods with further ones are left."""
    pods = [
        pod(f"p{k:03}", "fast-1", 1, plan=(k,), spec={"nodeSelector": {"no": str(k)}})
        for k in range(3)
    ]
    last = pod("q", "fast-1", 1, plan=(3,))
    nodes = (node("fast-1", "dgx-h100"), fleet()[1])
    monkeypatch.setattr(faster, "MAX_RULES", 3)
    assert candidates(nodes, *pods[1:], last) == [("q", "slow")]
    assert candidates(nodes, *pods, last) == []


def amd():
    """A node of another vendor."""
    one = node("amd", "8x-mi300x", allocatable={"amd.com/gpu": 8})
    one["status"]["capacity"] = {"amd.com/gpu": 8}
    return one


@pytest.mark.parametrize(
    ("here", "one"),
    [
        pytest.param(
            amd(), pod("p", "amd", 1, plan=(0,), resource="amd.com/gpu"), id="another vendor's GPUs"
        ),
        pytest.param(
            fleet()[0], pod("p", "fast", 1, resource="nvidia.com/mig-1g.5gb"), id="a MIG instance"
        ),
        pytest.param(fleet()[0], pod("p", "fast", 1), id="known by number"),
        pytest.param(fleet()[0], owned("DaemonSet"), id="of a DaemonSet"),
        pytest.param(fleet()[0], owned("Node"), id="a static pod"),
    ],
)
def test_pods_that_are_no_candidates(here, one):
    """They cannot have what the other node offers, or run nowhere else."""
    assert candidates((here, fleet()[1]), one) == []


def test_a_replica_of_a_shared_gpu_is_no_gpu():
    """A part of a fast GPU may be worth less than a whole slow one."""
    shared = DeviceHold("uid-p", "ml", "p", "main", RESOURCE, ("GPU-fast-0::1",))
    here = node("fast", "dgx-h100", report=DevicesReport(1, holds=(shared,)))
    assert candidates((here, fleet()[1]), pod("p", "fast", 1)) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"unschedulable": True}}, id="cordoned"),
        pytest.param({"conditions": [{"type": "Ready", "status": "False"}]}, id="not ready"),
    ],
)
def test_nodes_that_take_no_pods_are_no_place(change):
    """Whatever the pod tolerates."""
    fast, slow = fleet()
    slow["spec"] |= change.get("spec", {})
    slow["status"]["conditions"] = change.get("conditions", [])
    every = {"tolerations": [{"operator": "Exists"}]}
    assert candidates((fast, slow), pod("p", "fast", 1, plan=(0,), spec=every)) == []


def test_partitions_are_no_place():
    """Free instances are no whole GPUs."""
    topology = load_recording("8x-l4")
    parts = replace(topology, gpus=tuple(replace(gpu, parent="x") for gpu in topology.gpus))
    places = (fleet()[0], node("slow", parts))
    assert candidates(places, pod("p", "fast", 1, plan=(0,))) == []
