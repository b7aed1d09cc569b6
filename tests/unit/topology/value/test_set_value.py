"""What one set is worth: measured figures of real machines, and each rule on small ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.machines import NVLINK, direct_mesh, machine
from tests.strategies import link_counts
from topology.model import (
    DEFAULT_CONSTANTS,
    UNKNOWN_LINK,
    CpuPlatform,
    Gpu,
    LinkKind,
    P2pAccess,
    PcieLevel,
)
from topology.model import SwitchFabric as Fabric
from topology.recordings import load_recording
from topology.value import (
    STATED_ERROR,
    Limit,
    at_message_size,
    gpus_of,
    mask_of,
    start_up_cost,
    switch_gain,
)
from topology.value.machine_graph import machine_graph
from topology.value.set_value import SetValue, set_value

MIB = 1 << 20
V100 = Gpu(model="Tesla V100-SXM2-32GB")
A100 = Gpu(model="NVIDIA A100-SXM4-40GB")
H100 = Gpu(model="NVIDIA H100 80GB HBM3")
NAMELESS = Gpu()
PIX, PXB, SYS = PcieLevel.PIX, PcieLevel.PXB, PcieLevel.SYS

BANDPILOT = 16 * MIB
"""Message size of the node measurements of SusCom-Lab/BandPilot@de4dd93."""


def value_of(topology, mask):
    """Value a set, given as a mask, by the definition."""
    return set_value(machine_graph(topology), gpus_of(mask))


def value_at(found, message_bytes):
    """Give a set's value at a message size, by its own kind of path."""
    cost = np.array(start_up_cost(found.limit))
    return float(at_message_size(np.array(found.value_gbytes_per_s), cost, message_bytes))


@pytest.mark.parametrize(
    ("recording", "gpus", "message_bytes", "measured", "limit"),
    [
        # SusCom-Lab/BandPilot@de4dd93, medians over the sets of a kind, V100 hybrid cube mesh.
        pytest.param("dgx-1-v100", (0, 1), BANDPILOT, 22.0, Limit.RING, id="V100 pair, NV1"),
        pytest.param("dgx-1-v100", (0, 3), BANDPILOT, 42.2, Limit.RING, id="V100 pair, NV2"),
        pytest.param("dgx-1-v100", (0, 1, 2), BANDPILOT, 42.6, Limit.RING, id="V100, ring of 3"),
        pytest.param("dgx-1-v100", (0, 1, 2, 3), BANDPILOT, 74.5, Limit.RING, id="V100 quad"),
        pytest.param("dgx-1-v100", range(7), BANDPILOT, 71.6, Limit.RING, id="V100, 7 GPUs"),
        pytest.param("dgx-1-v100", range(8), BANDPILOT, 92.8, Limit.RING, id="V100, 8 GPUs"),
        pytest.param("dgx-1-v100", (0, 1, 4), BANDPILOT, 17.8, Limit.RELAY, id="V100, cut of 1"),
        pytest.param("dgx-1-v100", (0, 3, 4), BANDPILOT, 33.1, Limit.RELAY, id="V100, cut of 2"),
        # The same, A6000 with bridges.
        pytest.param("8x-a6000-bridged", "bridge", BANDPILOT, 38.3, Limit.RING, id="A6000 bridge"),
        pytest.param("8x-a6000-bridged", "switch", BANDPILOT, 20.2, Limit.PORT, id="A6000, PXB"),
        # The same, H100 at 2 GiB.
        pytest.param("dgx-h100", (0, 1), 2 << 30, 343.0, Limit.SWITCH, id="H100 pair, 2 GiB"),
        pytest.param("dgx-h100", range(5), 2 << 30, 410.0, Limit.SWITCH, id="H100, 5 GPUs"),
        pytest.param("dgx-h100", range(8), 2 << 30, 473.0, Limit.SWITCH, id="H100, 8 GPUs"),
        # Azure/AI-benchmarking-guide@8fd0c6e, ND H200 v5, 8 GPUs at 8 GiB; ND A100 v4.
        pytest.param("hgx-h200", range(8), 8 << 30, 480.0, Limit.SWITCH, id="H200, 8 GPUs"),
        pytest.param("dgx-a100", range(8), 8 << 30, 232.0, Limit.SWITCH, id="A100, 8 GPUs"),
        # uuudown/Tartan@e3166abc, DGX-1 P100, NCCL 2.
        pytest.param("dgx-1-p100", (0, 1), BANDPILOT, 17.28, Limit.RING, id="P100 pair"),
        pytest.param("dgx-1-p100", (0, 1, 2), BANDPILOT, 34.56, Limit.RING, id="P100, 3 GPUs"),
        pytest.param("dgx-1-p100", range(8), BANDPILOT, 62.24, Limit.RING, id="P100, 8 GPUs"),
    ],
)
def test_values_meet_what_was_measured(recording, gpus, message_bytes, measured, limit):
    """Every kind of path within 10 % of a measured figure of a machine of that kind."""
    topology = load_recording(recording)
    if gpus == "bridge":
        gpus = (0, next(j for j in range(8) if topology.links[0][j].is_up))
    elif gpus == "switch":
        gpus = (0, topology.pcie[0].index(PXB))
    found = value_of(topology, mask_of(gpus))
    assert found.limit is limit
    assert value_at(found, message_bytes) == pytest.approx(measured, rel=0.10)


def test_a_closed_ring_of_five_beats_a_quad_and_one():
    """More links in sum, yet less: 36 GB/s against 42.7 measured (BandPilot V100)."""
    machine = load_recording("dgx-1-v100")
    quad_and_one = value_of(machine, mask_of((0, 1, 2, 3, 4)))
    closed = max(
        (value_of(machine, mask) for mask in range(256) if mask.bit_count() == 5),
        key=lambda found: found.value_gbytes_per_s,
    )
    assert quad_and_one.limit is Limit.RELAY
    assert closed.limit is Limit.RING
    assert closed.value_gbytes_per_s > 1.3 * quad_and_one.value_gbytes_per_s


def test_a_quad_of_two_bridges_beats_its_slowest_edge():
    """PCIe is a port for each GPU: 41.9 GB/s measured where one slow edge predicts 24 (A6000)."""
    links = {(0, 1): NVLINK(4), (2, 3): NVLINK(4)}
    a6000 = Gpu(model="NVIDIA RTX A6000", numa_node=0)
    quad = machine([a6000] * 4, links=links, levels={"else": PXB})
    found = value_of(quad, 0b1111)
    assert found == SetValue(48.0, Limit.PORT, 0, 0)


def test_sharing_a_switch_uplink_inverts_the_order_without_p2p():
    """RTX 4090 measure 10.7 GB/s across sockets and 5.4 under one switch (BandPilot 4090)."""
    rtx = Gpu(model="NVIDIA GeForce RTX 4090")
    node = machine([rtx] * 3, levels={(0, 1): PIX, "else": SYS}, cpu=CpuPlatform.AMD)
    near, far = (value_of(node, mask) for mask in (0b011, 0b101))
    assert (near.limit, far.limit) == (Limit.UPLINK, Limit.PORT)
    assert near.value_gbytes_per_s == pytest.approx(5.4, rel=0.10)
    assert far.value_gbytes_per_s == pytest.approx(10.8, rel=0.10)


@pytest.mark.parametrize(
    ("node", "mask", "expected"),
    [
        pytest.param(machine([V100]), 1, SetValue(0.0, Limit.NOTHING, 0, 0), id="one GPU"),
        pytest.param(machine([V100] * 2), 0, SetValue(0.0, Limit.NOTHING, 0, 0), id="no GPU"),
        pytest.param(
            direct_mesh(V100, [[0, 2], [2, 0]]), 3, SetValue(50.0, Limit.RING, 2, 2), id="a pair"
        ),
        pytest.param(
            machine([V100] * 2, links={(0, 1): NVLINK(None)}),
            3,
            SetValue(25.0, Limit.RING, 1, 1),
            id="a pair whose links the count is unknown",
        ),
        pytest.param(
            machine([H100] * 2, links={(0, 1): NVLINK(1)}, levels={"else": PIX}),
            3,
            SetValue(48.0, Limit.PORT, 1, 1),
            id="a link that carries less than PCIe",
        ),
        pytest.param(
            machine([V100] * 2, links={(0, 1): UNKNOWN_LINK}, levels={"else": PIX}),
            3,
            SetValue(12.0, Limit.PORT, 0, 0),
            id="an unknown link is not counted",
        ),
        pytest.param(
            machine([V100] * 2),
            3,
            SetValue(6.0, Limit.SOCKET, 0, 0),
            id="all unknown: the slowest path there is",
        ),
        pytest.param(
            machine([Gpu(numa_node=0)] * 2), 3, SetValue(12.0, Limit.PORT, 0, 0), id="NUMA known"
        ),
        pytest.param(
            machine([Gpu(numa_node=0)] * 2, levels={"else": SYS}),
            3,
            SetValue(12.0, Limit.PORT, 0, 0),
            id="one NUMA node though PCIe says SYS",
        ),
        pytest.param(
            machine([H100] * 2, fabrics=[Fabric(((0, 18), (1, 18)), is_up=False)]),
            3,
            SetValue(22.0, Limit.SOCKET, 0, 0),
            id="a fabric that is down",
        ),
        pytest.param(
            machine([A100] * 2, fabrics=[Fabric(((0, 12), (1, 9)))]),
            3,
            SetValue(180.0, Limit.SWITCH, 0, 0),
            id="a fabric's slowest port",
        ),
        pytest.param(
            machine([A100] * 2, fabrics=[Fabric(((0, 12),))], levels={"else": PXB}),
            3,
            SetValue(24.0, Limit.PORT, 0, 0),
            id="a fabric with one member",
        ),
        pytest.param(
            machine([A100] * 2, fabrics=[Fabric(((0, 12), (1, 0)))], levels={"else": PXB}),
            3,
            SetValue(24.0, Limit.PORT, 0, 0),
            id="a member whose links are all down",
        ),
        pytest.param(
            machine(
                [V100] * 4,
                levels={(0, 1): PIX, (2, 3): PIX, "else": PcieLevel.NODE},
                p2p=P2pAccess.NO,
            ),
            0b1111,
            SetValue(12.0 * 0.45 / 2, Limit.UPLINK, 0, 0),
            id="staged traffic shares the uplink",
        ),
        pytest.param(
            machine(
                [V100] * 4,
                links={(0, 1): NVLINK(1), (2, 3): NVLINK(1)},
                levels={(0, 1): PIX, (2, 3): PIX, "else": PcieLevel.NODE},
            ),
            0b1111,
            SetValue(12.0, Limit.UPLINK, 0, 0),
            id="two islands below two switches",
        ),
        pytest.param(
            machine(
                [V100] * 4,
                links={(0, 1): NVLINK(2), (2, 3): NVLINK(2), (1, 2): NVLINK(1)},
                levels={(0, 1): PIX, (2, 3): PIX, "else": SYS},
                cpu=CpuPlatform.AMD,
            ),
            0b1011,
            SetValue(12.0, Limit.PORT, 0, 0),
            id="a GPU that no link of the set reaches has its port",
        ),
    ],
)
def test_each_rule_on_a_small_machine(node, mask, expected):
    """Pin the figure, what limits the set, the rings and the cut."""
    found = value_of(node, mask)
    assert found.value_gbytes_per_s == pytest.approx(expected.value_gbytes_per_s)
    assert (found.limit, found.rings, found.cut) == (expected.limit, expected.rings, expected.cut)


def test_links_help_the_pcie_tree_across_a_cut():
    """Three sets of links that do not connect the set still carry traffic beside PCIe."""
    fabric = Fabric(((0, 4), (1, 4)))
    node = machine([A100] * 3, fabrics=[fabric], links={(1, 2): NVLINK(1)}, levels={"else": PXB})
    found = value_of(node, 0b111)
    # GPU 2: its port and one NVLink; GPU 0 has 24 + 80, GPU 1 more.
    assert found == SetValue(24.0 + 20.0, Limit.PORT, 0, 0)


def test_a_narrow_link_that_closes_a_wide_chain_does_no_harm():
    """Relaying through a chain of 18 links goes on when one more link closes it to a ring."""
    chain = [[0, 18, 0], [18, 0, 18], [0, 18, 0]]
    ring = [[0, 18, 1], [18, 0, 18], [1, 18, 0]]
    values = [value_of(direct_mesh(H100, units), 0b111) for units in (chain, ring)]
    carried = 20.6 * (0.75 * 18)
    assert values[0] == SetValue(carried, Limit.RELAY, 0, 18)
    assert values[1] == SetValue(carried, Limit.RELAY, 2, 19)


@settings(max_examples=up_to(60))
@given(link_counts(min_gpus=3, max_gpus=5, counts=[0, 1, 2]), st.data())
def test_one_more_link_never_costs_more_than_its_own_relaying(units, data):
    """A ring of data replaces relaying over one link; nothing else falls with a new link.

    On meshes small enough for the search for rings to end by itself.
    """
    n = len(units)
    i, j = sorted(data.draw(st.permutations(range(n)))[:2])
    more = [list(row) for row in units]
    more[i][j] += 1
    more[j][i] += 1
    everything = (1 << n) - 1
    before, after = (value_of(direct_mesh(V100, counts), everything) for counts in (units, more))
    allowed = 25.0 * DEFAULT_CONSTANTS.relay_share if before.cut else 0.0
    assert after.value_gbytes_per_s >= before.value_gbytes_per_s - allowed
    assert after.cut >= before.cut


def test_start_up_cost_is_that_of_the_path():
    """One constant for each kind of path: switch, links, PCIe."""
    costs = {limit: start_up_cost(limit) for limit in Limit}
    assert costs[Limit.SWITCH] == DEFAULT_CONSTANTS.switch_a
    assert costs[Limit.RING] == costs[Limit.RELAY] == DEFAULT_CONSTANTS.mesh_a
    assert costs[Limit.PORT] == costs[Limit.UPLINK] == costs[Limit.SOCKET]
    assert costs[Limit.PORT] == DEFAULT_CONSTANTS.pcie_a


@pytest.mark.parametrize(("k", "place"), [(1, 0), (2, 0), (5, 3), (8, 6), (72, 6)])
def test_switch_gain_holds_at_its_ends(k, place):
    """Sizes below two take the first gain, sizes above eight the last."""
    assert (
        switch_gain(DEFAULT_CONSTANTS, k, reduces=True) == (DEFAULT_CONSTANTS.in_switch_gain[place])
    )
    assert switch_gain(DEFAULT_CONSTANTS, k, reduces=False) == 1.0


def test_every_limit_has_a_stated_error():
    """`min-bandwidth` subtracts it, whatever limits the set."""
    assert set(STATED_ERROR) == set(Limit)
    assert all(0 <= error < 1 for error in STATED_ERROR.values())


def test_message_size_costs_more_the_smaller_it_is():
    """1/B(M) = 1/B_inf + a x 16 MiB / M."""
    value, cost = np.array([100.0, 0.0]), np.array([0.01, 0.01])
    assert at_message_size(value, cost, 16 * MIB).tolist() == [50.0, 0.0]
    assert at_message_size(value, cost, 1 << 40)[0] == pytest.approx(100.0, rel=1e-4)


def test_a_kind_of_fabric_other_than_nvlink_counts_as_a_switch():
    """MetaX and AMD switches are switches too; only what they reduce is NVIDIA's."""
    fabric = Fabric(((0, 7), (1, 7)), kind=LinkKind.METAXLINK)
    found = value_of(machine([NAMELESS] * 2, fabrics=[fabric]), 3)
    assert found == SetValue(7 * 12.0, Limit.SWITCH, 0, 0)
