"""What the raw answers make of a machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.nvidia.nvml.discovery import describe, unlinked_pairs, with_remembered
from plugin.nvidia.nvml.raw_machine import (
    RawFabric,
    RawGpu,
    RawLink,
    RawMachine,
    pair_key,
)
from tests.examples import up_to
from tests.unit.plugin.machine_values import mig_device
from topology.importers.xml.nics import FoundNic
from topology.importers.xml.pcie_tree import PciPlace
from topology.model import CpuPlatform, P2pAccess, PcieLevel

SWITCH = 2


def gpu(index, **facts):
    """A GPU of which little is known."""
    return RawGpu(index=index, uuid=f"GPU-{index}", pci_bus_id=f"0000:{index:02x}:00.0", **facts)


def pair(i, j):
    """The key of two such GPUs."""
    return pair_key(f"GPU-{i}", f"GPU-{j}")


def place(*bridges, root="pci0000:3a", numa=0, is_hidden=False):
    """Where a device hangs."""
    return PciPlace(root, bridges, numa, is_hidden)


SAME_SWITCH = (place("p", "u", "d0"), place("p", "u", "d1"))
OTHER_SWITCH = (place("p", "u", "d0", "u1", "d1"), place("p", "u", "d2", "u2", "d3"))
SAME_ROOT = (place("p"), place("q"))
SAME_NODE = (place("p"), place("q", root="pci0000:80"))
OTHER_NODE = (place("p"), place("q", root="pci0000:80", numa=1))
GUEST = (place(is_hidden=True), place(root="pci0000:80", is_hidden=True))
GUEST_NODES = (place(is_hidden=True), place(root="pci0000:80", numa=1, is_hidden=True))
NOWHERE = (None, None)


@pytest.mark.parametrize(
    ("ancestor", "places", "expected"),
    [
        pytest.param(0, NOWHERE, PcieLevel.PIX, id="one board"),
        pytest.param(10, NOWHERE, PcieLevel.PIX, id="one switch"),
        pytest.param(20, NOWHERE, PcieLevel.PXB, id="several switches"),
        pytest.param(30, NOWHERE, PcieLevel.PHB, id="host bridge"),
        pytest.param(40, NOWHERE, PcieLevel.NODE, id="NUMA node"),
        pytest.param(50, NOWHERE, PcieLevel.SYS, id="system"),
        pytest.param(60, NOWHERE, PcieLevel.UNKNOWN, id="a number that is no level"),
        pytest.param(None, NOWHERE, PcieLevel.UNKNOWN, id="both unknown"),
        pytest.param(None, (SAME_SWITCH[0], None), PcieLevel.UNKNOWN, id="sysfs shows one"),
        pytest.param(None, SAME_SWITCH, PcieLevel.PIX, id="sysfs: one switch"),
        pytest.param(None, OTHER_SWITCH, PcieLevel.PXB, id="sysfs: several switches"),
        pytest.param(None, SAME_ROOT, PcieLevel.PHB, id="sysfs: host bridge"),
        pytest.param(None, SAME_NODE, PcieLevel.NODE, id="sysfs: NUMA node"),
        pytest.param(None, OTHER_NODE, PcieLevel.SYS, id="sysfs: system"),
        pytest.param(60, SAME_SWITCH, PcieLevel.PIX, id="NVML's level is unknown, sysfs has one"),
        pytest.param(40, SAME_ROOT, PcieLevel.NODE, id="NVML comes first"),
        pytest.param(30, GUEST, PcieLevel.UNKNOWN, id="guest: NVML knows the guest only"),
        pytest.param(None, GUEST, PcieLevel.UNKNOWN, id="guest: unknown"),
        pytest.param(50, GUEST, PcieLevel.SYS, id="guest: other nodes after NVML"),
        pytest.param(None, GUEST_NODES, PcieLevel.SYS, id="guest: other nodes after sysfs"),
    ],
)
def test_pcie_levels(ancestor, places, expected):
    """NVML's ancestor, else the tree; what a hypervisor made up is unknown."""
    gpus = (gpu(0, place=places[0]), gpu(1, place=places[1]))
    raw = RawMachine(gpus, ancestors={} if ancestor is None else {pair(0, 1): ancestor})
    reading = describe(raw)
    assert reading.topology.pcie[0][1] is reading.topology.pcie[1][0] is expected
    is_guest = places[0] is not None and places[0].is_hidden
    assert any("hypervisor" in note for note in reading.notes) is is_guest


def test_nics_have_levels_from_the_tree():
    """A NIC's place and each GPU's make its levels; a GPU without place is unknown."""
    nic = FoundNic("mlx5_0", "0000:41:00.0", place("p", "u", "d9"), is_rdma=True, gbit_per_s=400)
    gpus = (
        gpu(0, place=SAME_SWITCH[0]),
        gpu(1, place=SAME_NODE[1]),
        gpu(2),
        gpu(3, place=GUEST[0]),
    )
    (found,) = describe(RawMachine(gpus, nics=(nic,))).topology.nics
    assert found.levels == (PcieLevel.PIX, PcieLevel.NODE, PcieLevel.UNKNOWN, PcieLevel.UNKNOWN)
    assert (found.name, found.pci_bus_id, found.numa_node) == ("mlx5_0", "0000:41:00.0", 0)
    assert (found.is_rdma, found.gbit_per_s) == (True, 400)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        pytest.param({}, P2pAccess.UNKNOWN, id="not read"),
        pytest.param({(0, 1): 0, (0, 2): 0}, P2pAccess.YES, id="all may"),
        pytest.param({(0, 1): 2, (0, 2): 2}, P2pAccess.NO, id="none may"),
        pytest.param({(0, 1): 0, (0, 2): 3}, P2pAccess.YES, id="below the switch they may"),
        pytest.param({(0, 1): 4, (0, 2): 0}, P2pAccess.NO, id="below the switch they may not"),
        pytest.param({(0, 2): 0, (1, 2): 3}, P2pAccess.UNKNOWN, id="mixed, and none below one"),
    ],
)
def test_p2p(statuses, expected):
    """Where pairs differ those below one switch decide; GPU 2 hangs elsewhere."""
    ancestors = {pair(0, 1): 10, pair(0, 2): 50, pair(1, 2): 50}
    p2p = {pair(i, j): status for (i, j), status in statuses.items()}
    raw = RawMachine(tuple(gpu(i) for i in range(3)), ancestors=ancestors, p2p=p2p)
    assert describe(raw).topology.p2p is expected


def test_p2p_pairs_below_one_switch_that_differ_stay_unknown():
    """No rule says which of two neighbours is right."""
    p2p = {pair(0, 1): 0, pair(1, 2): 2}
    ancestors = {pair(i, j): 10 for i, j in combinations(range(3), 2)}
    raw = RawMachine(tuple(gpu(i) for i in range(3)), ancestors=ancestors, p2p=p2p)
    assert describe(raw).topology.p2p is P2pAccess.UNKNOWN


def test_p2p_matters_where_no_nvlink_is():
    """Pairs with NVLink need not be read."""
    linked = tuple(
        gpu(i, links=(RawLink(far_type=0, far_bus_id=f"0000:{1 - i:02x}:00.0"),)) for i in range(2)
    )
    gpus = (*linked, gpu(2, links=()))
    assert [(a.index, b.index) for a, b in unlinked_pairs(gpus)] == [(0, 2), (1, 2)]


def test_p2p_of_a_pair_with_an_unknown_link_says_nothing_of_pcie():
    """Access may be that of the NVLink that could not be read."""
    assert unlinked_pairs((gpu(0), gpu(1))) == ()


@pytest.mark.parametrize(
    ("model", "version", "generation", "notes"),
    [
        pytest.param("NVIDIA GB200", 5, 5, 1, id="the mock's generation for an enumerator"),
        pytest.param("NVIDIA GB200", 7, 5, 0, id="as the model has it"),
        pytest.param("NVIDIA GB200", None, None, 0, id="not read"),
        pytest.param("NVIDIA X999", 5, 30, 0, id="a model that is not known"),
    ],
)
def test_a_generation_that_the_model_cannot_have_is_not_believed(model, version, generation, notes):
    """A GB200 had the links of an A10, and a quarter of its bandwidth."""
    reading = describe(RawMachine((gpu(0, model=model, link_version=version),)))
    assert reading.topology.gpus[0].link_generation == generation
    assert sum("NVLink generation" in note for note in reading.notes) == notes


def test_every_fact_of_a_gpu_arrives():
    """A field that gets lost on the way is a fact that is never published."""
    instance = mig_device("MIG-1", "1g.10gb", 0, 7, 0, 9856)
    raw = RawGpu(
        index=4,
        uuid="GPU-a",
        pci_bus_id="0000:1a:00.0",
        model="NVIDIA H100",
        memory_bytes=85_520_809_984,
        minor=2,
        numa_node=1,
        link_version=6,
        n_c2c_links=1,
        is_mig_enabled=True,
        instances=(instance,),
        fault="lost",
    )
    reading = describe(
        RawMachine(
            (raw,),
            cpu=CpuPlatform.AMD,
            driver_version="580.65.06",
            notes=("a note",),
            numa_distances=((0, (10,)),),
        )
    )
    (found,), (drawn,) = reading.gpus, reading.topology.gpus
    assert (found.index, found.gpu) == (4, drawn)
    assert (found.nodes, found.n_c2c_links, found.fault) == (("/dev/nvidia2",), 1, "lost")
    assert (found.is_partitioned, found.partitions) == (True, (instance,))
    assert (drawn.uuid, drawn.pci_bus_id, drawn.model) == ("GPU-a", "0000:1a:00.0", "NVIDIA H100")
    assert (drawn.memory_mib, drawn.numa_node, drawn.link_generation) == (81559, 1, 4)
    assert reading.topology.cpu is CpuPlatform.AMD
    assert reading.driver_version == "580.65.06"
    assert reading.notes == ("a note", "GPU 4 (GPU-a) cannot be used: lost")
    assert reading.numa_distances == ((0, (10,)),)


def test_facts_that_were_not_read_are_none():
    """Unknown is not zero: no memory, no generation, no node."""
    reading = describe(RawMachine((gpu(0, memory_bytes=0),)))
    assert reading.gpus[0].nodes == ()
    assert reading.topology.gpus[0].memory_mib is None
    assert reading.topology.gpus[0].link_generation is None
    assert reading.topology.gpus[0].numa_node is None
    assert reading.notes == ()


def test_fabrics_that_are_down_or_ill_are_noted():
    """People must see why NVLink is missing; GPUs without links need no word."""
    switch = RawLink(far_type=SWITCH)
    gpus = (
        gpu(0, links=(switch,), fabric=RawFabric(state=2)),
        gpu(1, links=(switch,), fabric=RawFabric(state=2)),
        gpu(2, links=(switch,), fabric=RawFabric(state=3, health=2)),
        gpu(3, links=(switch,), fabric=RawFabric(state=3, health=3)),
        gpu(4, links=(switch,), fabric=RawFabric(state=3, health=1)),
        gpu(5, links=(), fabric=RawFabric(state=2)),
    )
    assert describe(RawMachine(gpus)).notes == (
        "no NVLink through the fabric: registration in progress (GPU 0, 1)",
        "NVML calls the NVLink fabric unhealthy (GPU 2)",
        "NVML calls the NVLink fabric of limited capacity (GPU 3)",
    )


# --- GPUs that were known before ---


def test_a_gpu_that_answers_late_takes_its_place():
    """It was lost from the start, so its place is unknown: NVML's index counts."""
    gpus, _ = with_remembered([gpu(i) for i in range(4)], [], [gpu(0), gpu(2), gpu(3)])
    assert [found.index for found in gpus] == [0, 1, 2, 3]


# --- whatever is said ---


@st.composite
def raw_machines(draw):
    """Up to five GPUs that say anything at all, in the types that NVML has."""
    n = draw(st.integers(1, 5))
    bus_ids = [None, *(f"0000:{i:02x}:00.0" for i in range(n + 1))]
    links = st.builds(
        RawLink,
        far_type=st.sampled_from([None, 0, 1, 2, 255]),
        far_bus_id=st.sampled_from(bus_ids),
        far_class=st.sampled_from([None, "0x030200", "0x068000", "0x068001"]),
    )
    fabrics = st.builds(
        RawFabric,
        state=st.integers(0, 4),
        status=st.sampled_from([0, 3]),
        cluster_uuid=st.sampled_from(["00000000-0000-0000-0000-000000000000", "a", "b"]),
        clique_id=st.integers(0, 1),
        health=st.sampled_from([None, 0, 1, 2, 3]),
    )
    places = st.builds(
        PciPlace,
        root=st.sampled_from(["r", "s"]),
        bridges=st.lists(st.sampled_from("pqu"), max_size=4).map(tuple),
        numa_node=st.sampled_from([None, 0, 1]),
        is_hidden=st.booleans(),
    )
    gpus = tuple(
        gpu(
            i,
            links=draw(st.none() | st.lists(links, max_size=6).map(tuple)),
            n_links=draw(st.integers(0, 18)),
            link_version=draw(st.none() | st.integers(0, 9)),
            fabric=draw(st.none() | fabrics),
            place=draw(st.none() | places),
            fault=draw(st.sampled_from([None, "lost"])),
        )
        for i in range(n)
    )
    pairs = [pair(i, j) for i, j in combinations(range(n), 2)]
    answers = st.dictionaries(st.sampled_from(pairs), st.integers(0, 60)) if pairs else st.just({})
    nics = tuple(
        FoundNic(f"mlx5_{i}", f"0001:{i:02x}:00.0", draw(places), is_rdma=None)
        for i in range(draw(st.integers(0, 2)))
    )
    return RawMachine(gpus, ancestors=draw(answers), p2p=draw(answers), nics=nics)


@settings(max_examples=up_to(50))
@given(raw_machines(), st.randoms(use_true_random=False))
def test_any_answers_make_a_machine_that_does_not_depend_on_their_order(raw, random):
    """No answer may crash the reader; a GPU's place in the list must not change its links."""
    topology = describe(raw).topology
    order = list(range(topology.n_gpus))
    random.shuffle(order)
    other = describe(replace(raw, gpus=tuple(raw.gpus[i] for i in order))).topology
    for a, i in enumerate(order):
        for b, j in enumerate(order):
            assert other.pcie[a][b] is topology.pcie[i][j]
            assert other.links[a][b] == topology.links[i][j]
    assert other.p2p is topology.p2p
    assert [nic.levels for nic in other.nics] == [
        tuple(nic.levels[i] for i in order) for nic in topology.nics
    ]
