"""Which resource a topology names, and which GPUs the kubelet offers as it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from tests.kubectl_lists import RESOURCE, held_by, kube_list, node, pod
from topology.annotations import DevicesReport, UnhealthyDevice
from topology.audit.cluster import (
    OfferedGpus,
    ProblemKind,
    described_resource,
    hold_node,
    offer_of,
    read_cluster,
)
from topology.model import NodeTopology, decode_topology
from topology.recordings import load_recording

Counts: TypeAlias = Mapping[str, object]

ALL = 0xFF
MIG = "nvidia.com/mig-1g.5gb"
FOREIGN = "koordinator.sh/gpu"


def offering(counts: Counts, machine: NodeTopology | str = "dgx-1-v100", **fields: Any):
    """A node that offers these numbers."""
    one = node("n1", machine, allocatable=counts, **fields)
    one["status"]["capacity"] = dict(counts)
    return one


def read(one, *pods):
    """The node as an audit has it, and its pods."""
    cluster = read_cluster(kube_list(one), kube_list(*pods))
    return cluster.nodes[0], cluster.pods


def offer(counts: Counts, machine: NodeTopology | str = "dgx-1-v100", *, unhealthy: int = 0):
    """What a node offers of whole GPUs."""
    found, _ = read(offering(counts, machine))
    return offer_of(found, RESOURCE, decode_topology(found.topology or ""), unhealthy)


def test_whole_gpus_come_first():
    """Before partitions; what pods request while no device plugin is registered."""
    one = node("n1", allocatable={MIG: 2, RESOURCE: 0})
    found, pods = read(one, pod("p", "n1", resource="amd.com/gpu"))
    assert described_resource(found) == RESOURCE
    bare = replace(found, capacity={}, allocatable={RESOURCE: 0})
    assert described_resource(bare) == ""
    assert described_resource(bare, pods) == "amd.com/gpu"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param({FOREIGN: 800, RESOURCE: 8}, RESOURCE, id="shares beside GPUs"),
        pytest.param({FOREIGN: 800, RESOURCE: 7}, RESOURCE, id="no number fits: a known vendor"),
        pytest.param(
            {"a.example/gpu": 8, RESOURCE: 32}, "a.example/gpu", id="the number that fits"
        ),
        pytest.param({"b.example/gpu": 4, "a.example/gpu": 4}, "a.example/gpu", id="by name"),
    ],
)
def test_several_resources_like_gpus(counts, expected):
    """The topology's number of GPUs decides, then the vendor."""
    found, _ = read(offering(counts))
    assert described_resource(found, n_gpus=8) == expected


def test_shares_beside_gpus_hinder_nothing():
    """The node is judged by its GPUs."""
    report = DevicesReport(1, holds=(held_by("p", "n1", (0, 5)),))
    found, pods = read(offering({FOREIGN: 800, RESOURCE: 8}, report=report), pod("p", "n1"))
    holdings = hold_node(found, pods, frozenset())
    assert (holdings.resource, holdings.free, holdings.problems) == (RESOURCE, ALL & ~0b100001, [])


def test_all_gpus_are_offered():
    """Also where the device plugin holds back those that the plugin calls unhealthy."""
    assert offer({RESOURCE: 8}) == OfferedGpus(ALL)
    assert offer({RESOURCE: 7}, unhealthy=1) == OfferedGpus(ALL)


def partly_split():
    """Three whole GPUs and two instances, as a reporter under MIG strategy mixed has them."""
    topology = load_recording("8x-l4")
    keep = range(5)
    return replace(
        topology,
        gpus=(
            *topology.gpus[:3],
            *(replace(topology.gpus[i], parent="GPU-parent") for i in (3, 4)),
        ),
        links=tuple(tuple(topology.links[i][j] for j in keep) for i in keep),
        pcie=tuple(tuple(topology.pcie[i][j] for j in keep) for i in keep),
        nics=(),
        fabrics=(),
        measurement=None,
    )


def test_a_topology_with_partitions_names_the_whole_gpus():
    """MIG strategy mixed: the resource of whole GPUs has no instances."""
    assert offer({RESOURCE: 3, MIG: 2}, partly_split()) == OfferedGpus(0b111)
    found, pods = read(offering({RESOURCE: 3, MIG: 2}, partly_split()), pod("p", "n1", plan=(0, 1)))
    holdings = hold_node(found, pods, frozenset())
    assert (holdings.free, holdings.parts, holdings.n_split) == (0b100, 0b11000, 0)


def test_gpus_in_mig_mode_that_are_shown_as_whole():
    """Their number is known, and not which they are."""
    assert offer({RESOURCE: 7, MIG: 7}) == OfferedGpus(ALL, 1)
    assert offer({RESOURCE: 6, MIG: 14}, unhealthy=1) == OfferedGpus(ALL, 2)
    found, pods = read(offering({RESOURCE: 7, MIG: 7}), pod("p", "n1", plan=(0, 5)))
    holdings = hold_node(found, pods, frozenset())
    assert (holdings.free, holdings.n_split, holdings.problems) == (ALL & ~0b100001, 1, [])


def test_gpus_in_mig_mode_are_those_that_are_left():
    """All others have an owner."""
    held = pod("p", "n1", 7, plan=range(7))
    found, pods = read(offering({RESOURCE: 7, MIG: 7}), held)
    holdings = hold_node(found, pods, frozenset())
    assert (holdings.free, holdings.n_split, holdings.problems) == (0, 0, [])


@pytest.mark.parametrize(
    ("counts", "unhealthy", "kind"),
    [
        pytest.param({RESOURCE: 32}, 0, ProblemKind.SHARED, id="replicas"),
        pytest.param({RESOURCE: "1k"}, 0, ProblemKind.SHARED, id="a thousand replicas"),
        pytest.param({RESOURCE: 5}, 0, ProblemKind.FEWER, id="fewer"),
        pytest.param({RESOURCE: 0, MIG: 56}, 0xFF, ProblemKind.SHARED, id="MIG alone"),
        pytest.param({RESOURCE: "1.5"}, 0, ProblemKind.QUANTITY, id="no number"),
    ],
)
def test_what_is_offered_is_not_known(counts, unhealthy, kind):
    """Nothing on the node is judged, and the reason is named."""
    found = offer(counts, unhealthy=unhealthy if kind is not ProblemKind.SHARED else 0)
    assert found.problem is not None
    assert found.problem.kind is kind


def test_shares_under_a_name_of_their_own_are_shares():
    """Fewer than GPUs though they are."""
    found, _ = read(offering({"nvidia.com/gpu.shared": 4}))
    topology = decode_topology(found.topology or "")
    problem = offer_of(found, "nvidia.com/gpu.shared", topology, 0).problem
    assert problem is not None
    assert problem.kind is ProblemKind.SHARED


def test_one_healthy_gpu_is_singular():
    """What a person reads is a sentence."""
    report = DevicesReport(1, tuple(UnhealthyDevice(f"GPU-n1-{i}", "XID 79") for i in range(7)))
    found, _ = read(node("n1", report=report, allocatable={RESOURCE: 0}))
    (problem,) = hold_node(found, (), frozenset()).problems
    assert problem.text == (
        "the kubelet offers 0 of nvidia.com/gpu, and the topology shows 1 healthy GPU: "
        "which are free is not known"
    )


def test_a_topology_without_any_offer():
    """While no device plugin is registered."""
    one = offering({})
    (problem,) = hold_node(read(one)[0], (), frozenset()).problems
    assert problem.kind is ProblemKind.FEWER
    assert problem.text.startswith("the kubelet offers 0 of a GPU resource, and")


def test_a_number_that_cannot_be_read_is_said():
    """With the field and its value; other nodes are audited all the same."""
    (problem,) = hold_node(read(offering({RESOURCE: "1.5"}))[0], (), frozenset()).problems
    assert problem.text == (
        "status.allocatable.nvidia.com/gpu is '1.5', expected a whole number of devices: "
        "which GPUs are free is not known"
    )
