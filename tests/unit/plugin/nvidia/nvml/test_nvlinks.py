"""Which NVLinks join which GPUs, from what each end says."""

from __future__ import annotations

import pytest

from plugin.nvidia.nvml.nvlinks import GENERATIONS, clique_of, fabric_fault, nvlink_matrix
from plugin.nvidia.nvml.raw_machine import RawFabric, RawGpu, RawLink
from topology.model import GA102_GENERATION, NO_LINK, UNKNOWN_LINK, AcceleratorLink, LinkKind

A, B, C = "0000:1a:00.0", "0000:25:00.0", "0000:30:00.0"
GPU, NPU, SWITCH, UNKNOWN = 0, 1, 2, 255
CLUSTER = "5f3c1d2e-0000-4000-8000-00000000000a"


def gpu(index, *links, fabric=None, n_links=None, has_links=True):
    """A GPU whose links are up; more of them may be there than are up."""
    return RawGpu(
        index=index,
        uuid=f"GPU-{index}",
        pci_bus_id=(A, B, C)[index],
        links=tuple(links) if has_links else None,
        n_links=len(links) if n_links is None else n_links,
        fabric=fabric,
    )


def to(bus_id, far_type: int | None = GPU, far_class=None):
    """A link to a PCI id."""
    return RawLink(far_type=far_type, far_bus_id=bus_id, far_class=far_class)


def to_switch(n_links):
    """Links to switches."""
    return [RawLink(far_type=SWITCH)] * n_links


def nv(n_links):
    """What a pair has."""
    return AcceleratorLink(LinkKind.NVLINK, n_links)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param([to(B), to(B)], [to(A), to(A)], nv(2), id="as many as both ends count"),
        pytest.param([to(B), to(B)], [to(A)], nv(1), id="up as far as both ends count it"),
        pytest.param([to(B)], [], NO_LINK, id="one end counts none"),
        pytest.param([], [], NO_LINK, id="no link is up"),
        pytest.param([to(B, UNKNOWN)], [to(A, None)], nv(1), id="type unknown, the id decides"),
        pytest.param([to(C)], [to(C)], UNKNOWN_LINK, id="both go to an id that is not here"),
        pytest.param([to(C)], [], NO_LINK, id="one goes to an id that is not here"),
        pytest.param([to(A)], [to(B)], UNKNOWN_LINK, id="both name themselves (Azure)"),
        pytest.param(
            [to(C, GPU, "0x030200")], [to(C, GPU, "0x030200")], NO_LINK, id="to a GPU NVML hides"
        ),
        pytest.param([to(None, NPU)], [to(None, NPU)], NO_LINK, id="to a POWER9"),
        pytest.param(
            [to(C, None, "0x068001")], [to(C, None, "0x068001")], NO_LINK, id="to a CPU by class"
        ),
        pytest.param([to(None)], [to(None)], UNKNOWN_LINK, id="to GPUs without an id"),
    ],
)
def test_direct_links(first, second, expected):
    """A pair has what its two ends agree on, and a link that cannot be placed stays unknown."""
    links, fabrics = nvlink_matrix([gpu(0, *first), gpu(1, *second)])
    assert links == ((NO_LINK, expected), (expected, NO_LINK))
    assert fabrics == ()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([to(B), to(B)], nv(2), id="the word of the one that answers counts"),
        pytest.param([to(C)], UNKNOWN_LINK, id="a link that may end at the silent one"),
        pytest.param(to_switch(4), UNKNOWN_LINK, id="the silent one may hang on the switch"),
        pytest.param([], NO_LINK, id="the one that answers has no link"),
    ],
)
def test_a_gpu_that_says_nothing_leaves_the_others_word(found, expected):
    """A GPU that cannot be read must not erase what its peer knows, nor invent a link."""
    links, _ = nvlink_matrix([gpu(0, *found), gpu(1, has_links=False)])
    assert links[0][1] == links[1][0] == expected


def test_silence_of_all_is_unknown():
    """No word about links is not "no link"."""
    links, fabrics = nvlink_matrix([gpu(0, has_links=False), gpu(1, has_links=False)])
    assert (links[0][1], fabrics) == (UNKNOWN_LINK, ())


@pytest.mark.parametrize(
    "far_end",
    [
        pytest.param(RawLink(far_type=SWITCH), id="NVML says switch"),
        pytest.param(to(C, SWITCH), id="NVML says switch, and an id"),
        pytest.param(RawLink(), id="old driver, id unreadable or the sentinel"),
        pytest.param(to(None, UNKNOWN), id="type unknown, no id"),
        pytest.param(to(C, None, "0x068000"), id="sysfs says NVSwitch"),
        pytest.param(to(C, UNKNOWN, "0x068000"), id="type unknown, sysfs says NVSwitch"),
    ],
)
def test_ends_at_a_switch(far_end):
    """Each sign of a switch makes a fabric, in which a pair has the lesser count."""
    links, fabrics = nvlink_matrix([gpu(0, far_end, far_end), gpu(1, far_end)])
    assert links[0][1] == nv(1)
    assert [(fabric.ports, fabric.is_up) for fabric in fabrics] == [(((0, 2), (1, 1)), True)]


def test_a_gpu_with_all_links_down_is_a_member_without_ports():
    """Its links are there, so it is on the switches; it reaches no other GPU."""
    links, (fabric,) = nvlink_matrix([gpu(0, *to_switch(18)), gpu(1, n_links=18)])
    assert fabric.ports == ((0, 18), (1, 0))
    assert links[0][1] == NO_LINK


def test_a_gpu_without_nvlinks_is_no_member():
    """A graphics card beside an NVSwitch machine does not hang on its switches."""
    _, (fabric,) = nvlink_matrix([gpu(0, *to_switch(18)), gpu(1)])
    assert fabric.ports == ((0, 18),)


def test_a_fabric_that_is_not_registered_gives_no_nvlink():
    """Links that are up carry nothing before the fabric manager is done."""
    fabric = RawFabric(state=2)
    links, (found,) = nvlink_matrix([gpu(i, *to_switch(18), fabric=fabric) for i in range(2)])
    assert links[0][1] == NO_LINK
    assert (found.is_up, found.ports) == (False, ((0, 18), (1, 18)))


def test_one_unregistered_gpu_leaves_the_others_their_fabric():
    """One GPU that the fabric manager refused must not take NVLink from the rest."""
    up, down = RawFabric(state=3), RawFabric(state=3, status=999)
    gpus = [gpu(i, *to_switch(18), fabric=up if i else down) for i in range(3)]
    links, (bad, good) = nvlink_matrix(gpus)
    assert (links[0][1], links[1][2]) == (NO_LINK, nv(18))
    assert (bad.is_up, bad.ports, good.is_up) == (False, ((0, 18),), True)


def test_cliques_are_fabrics_of_their_own():
    """GPUs of different cliques do not reach each other, whatever the switches."""
    fabrics = [RawFabric(state=3, cluster_uuid=CLUSTER, clique_id=i) for i in (1, 1, 2)]
    links, found = nvlink_matrix([gpu(i, *to_switch(18), fabric=fabrics[i]) for i in range(3)])
    assert [fabric.clique for fabric in found] == [f"{CLUSTER}.1", f"{CLUSTER}.2"]
    assert (links[0][1], links[0][2]) == (nv(18), NO_LINK)


def test_a_gpu_whose_fabric_cannot_be_read_is_of_no_known_clique():
    """A call that fails once said that there is no NVLink; other members are as they were."""
    known = RawFabric(state=3, cluster_uuid=CLUSTER, clique_id=1)
    links, found = nvlink_matrix(
        [gpu(i, *to_switch(18), fabric=(known, None, known)[i]) for i in range(3)]
    )
    assert [fabric.ports for fabric in found] == [((0, 18), (2, 18))]
    assert (links[0][1], links[1][2], links[0][2]) == (UNKNOWN_LINK, UNKNOWN_LINK, nv(18))
    within = RawFabric(state=3)
    _, found = nvlink_matrix([gpu(i, *to_switch(18), fabric=(within, None)[i]) for i in range(2)])
    assert [fabric.ports for fabric in found] == [((0, 18), (1, 18))]


def test_a_dead_gpu_is_member_of_its_own_clique():
    """What it was registered for says where it hangs."""
    fabrics = [RawFabric(state=3, cluster_uuid=CLUSTER, clique_id=i) for i in (1, 2, 2)]
    gpus = [
        gpu(0, *to_switch(18), fabric=fabrics[0]),
        gpu(1, *to_switch(18), fabric=fabrics[1]),
        gpu(2, fabric=fabrics[2], n_links=18),
    ]
    assert [fabric.ports for fabric in nvlink_matrix(gpus)[1]] == [((0, 18),), ((1, 18), (2, 0))]


@pytest.mark.parametrize(
    ("fabric", "fault", "clique"),
    [
        (None, None, None),
        (RawFabric(state=0), None, None),
        (RawFabric(state=1), "registration not started", None),
        (RawFabric(state=2), "registration in progress", None),
        (RawFabric(state=9), "registration in state 9", None),
        (RawFabric(state=3), None, None),
        (RawFabric(state=3, status=3), "registration failed with status 3", None),
        (RawFabric(state=3, cluster_uuid=CLUSTER, clique_id=7), None, f"{CLUSTER}.7"),
        (RawFabric(state=2, cluster_uuid=CLUSTER), "registration in progress", None),
    ],
)
def test_fabric_states(fabric, fault, clique):
    """Only a registration that is completed without an error is a fabric; a zero uuid no clique."""
    assert fabric_fault(fabric) == fault
    assert clique_of(fabric) == clique


def test_version_is_an_enumerator():
    """5.0 is 7 and 4.0 is 6: taken for generations, Blackwell would be a seventh."""
    assert [GENERATIONS[version] for version in (1, 2, 4, 6, 7)] == [1, 2, 3, 4, 5]
    assert GENERATIONS[5] == GA102_GENERATION
