"""A node's capacities: links in units, fabrics, PCIe groups and P2P from all corners."""

import pytest
from hypothesis import given, settings

from tests.examples import up_to
from tests.machines import NVLINK, machine
from tests.strategies import node_topologies
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    Gpu,
    LinkKind,
    P2pAccess,
    PcieLevel,
    SwitchFabric,
)
from topology.value import mask_of, node_capacities
from topology.value.capacity import MAX_UNITS

V100 = Gpu(model="Tesla V100-SXM2-32GB")
A100 = Gpu(model="NVIDIA A100-SXM4-40GB")
A6000 = Gpu(model="NVIDIA RTX A6000")
H100 = Gpu(model="NVIDIA H100 80GB HBM3")
RTX_4090 = Gpu(model="NVIDIA GeForce RTX 4090")
NAMELESS = Gpu()


@pytest.mark.parametrize(
    ("gpus", "links", "unit", "units"),
    [
        pytest.param([V100] * 2, {(0, 1): NVLINK(2)}, 25.0, 2, id="two NVLinks of a V100"),
        pytest.param([A6000] * 2, {(0, 1): NVLINK(4)}, 12.0, 4, id="a bridge of GA102"),
        pytest.param([NAMELESS] * 2, {(0, 1): NVLINK(2)}, 12.0, 2, id="unknown GPUs, slow links"),
        pytest.param([V100, NAMELESS], {(0, 1): NVLINK(2)}, 25.0, 2, id="one end is enough"),
        pytest.param(
            [V100] * 2, {(0, 1): NVLINK(None)}, 25.0, 1, id="links that the count is unknown: one"
        ),
        pytest.param(
            [Gpu(link_generation=5, model=V100.model)] * 2,
            {(0, 1): NVLINK(1)},
            40.1,
            1,
            id="a recorded generation outranks the model's",
        ),
        pytest.param(
            [NAMELESS] * 2,
            {(0, 1): AcceleratorLink(LinkKind.C2C, 1)},
            12.0,
            1,
            id="a kind without a row",
        ),
        pytest.param(
            [Gpu(model="AMD Instinct MI300X")] * 2,
            {(0, 1): AcceleratorLink(LinkKind.XGMI, 1)},
            64.0,
            1,
            id="XGMI has its own rates",
        ),
        pytest.param([V100] * 2, {}, 0.0, 0, id="no link, no unit"),
        pytest.param([V100] * 2, {(0, 1): UNKNOWN_LINK}, 0.0, 0, id="unknown is not counted"),
    ],
)
def test_direct_links_are_counted_in_units(gpus, links, unit, units):
    """Rings and cuts count links, so each link must come out as whole units of one rate."""
    capacities = node_capacities(machine(gpus, links=links))
    assert capacities.unit_gbytes_per_s == unit
    assert capacities.units == ((0, units), (units, 0))
    assert capacities.adjacency == ((2, 1) if units else (0, 0))


def test_mixed_generations_share_the_slowest_unit():
    """A node of V100 and B200 pairs is one multigraph; a fast link is whole units, rounded down."""
    b200 = Gpu(model="NVIDIA B200")
    capacities = node_capacities(
        machine(
            [A6000, A6000, b200, b200, V100, V100],
            links={(0, 1): NVLINK(4), (2, 3): NVLINK(36), (4, 5): NVLINK(1)},
        )
    )
    assert capacities.unit_gbytes_per_s == 12.0
    assert capacities.units[0][1] == 4
    assert capacities.units[2][3] == MAX_UNITS  # 36 x 50 / 12 = 150
    assert capacities.units[4][5] == 2  # 25 / 12 = 2.08


def test_a_fabric_gives_ports_and_no_direct_links():
    """Two GPUs on one switch have no link of their own; a port without links is outside."""
    fabric = SwitchFabric(((0, 18), (1, 18), (2, 17), (3, 0)))
    capacities = node_capacities(machine([H100] * 4, fabrics=[fabric]))
    (ports,) = capacities.fabrics
    assert ports.members == 0b0111
    assert ports.port_gbytes_per_s == pytest.approx((18 * 20.6, 18 * 20.6, 17 * 20.6, 0.0))
    assert ports.reduces
    assert capacities.units == ((0,) * 4,) * 4
    assert capacities.adjacency == (0b110, 0b101, 0b011, 0)


def test_a_link_beside_the_fabric_stays_a_direct_link():
    """A GPU without switch links may still be bridged to a member."""
    fabric = SwitchFabric(((0, 12), (1, 12), (2, 0)))
    capacities = node_capacities(
        machine([A100] * 4, fabrics=[fabric], links={(2, 3): NVLINK(4), (1, 3): NVLINK(2)})
    )
    assert [capacities.units[i][3] for i in range(3)] == [0, 2, 4]
    assert capacities.units[0][1] == 0
    assert capacities.adjacency == (0b0010, 0b1001, 0b1000, 0b0110)


def test_two_fabrics_stay_apart():
    """Members of different fabrics do not reach each other over NVLink."""
    capacities = node_capacities(
        machine(
            [A100] * 4, fabrics=[SwitchFabric(((0, 12), (1, 12))), SwitchFabric(((2, 12), (3, 12)))]
        )
    )
    assert [ports.members for ports in capacities.fabrics] == [0b0011, 0b1100]
    assert capacities.adjacency == (2, 1, 8, 4)
    assert not capacities.fabrics[0].reduces


@pytest.mark.parametrize(
    ("gpus", "fabric", "reduces"),
    [
        pytest.param([A100] * 2, SwitchFabric(((0, 12), (1, 12))), False, id="A100 does not"),
        pytest.param([H100] * 2, SwitchFabric(((0, 18), (1, 18))), True, id="H100 does"),
        pytest.param(
            [NAMELESS] * 2, SwitchFabric(((0, 18), (1, 18))), False, id="unknown never does"
        ),
        pytest.param(
            [H100] * 2,
            SwitchFabric(((0, 7), (1, 7)), kind=LinkKind.METAXLINK),
            False,
            id="no other kind does",
        ),
    ],
)
def test_which_switches_reduce(gpus, fabric, reduces):
    """Only NVSwitch from NVLink generation 4 on has SHARP."""
    assert node_capacities(machine(gpus, fabrics=[fabric])).fabrics[0].reduces is reduces


def test_a_fabric_that_is_down_gives_nothing():
    """Down means no NVLink, whatever the port counts say."""
    fabric = SwitchFabric(((0, 18), (1, 18)), is_up=False)
    capacities = node_capacities(machine([H100] * 2, fabrics=[fabric]))
    assert capacities.fabrics == ()
    assert capacities.adjacency == (0, 0)


def test_a_fabric_of_one_member_joins_no_gpus():
    """One GPU of a rack-scale domain has a port and no peer on this node."""
    capacities = node_capacities(machine([H100] * 2, fabrics=[SwitchFabric(((1, 18),))]))
    assert capacities.fabrics[0].members == 0b10
    assert capacities.adjacency == (0, 0)


PIX, SYS = PcieLevel.PIX, PcieLevel.SYS


def test_an_uplink_is_as_fast_as_the_slowest_port_below_it():
    """Ports follow each GPU's own PCIe generation, an unknown GPU's the slowest."""
    capacities = node_capacities(
        machine([H100, A100, V100, NAMELESS], levels={(0, 1): PIX, (2, 3): PIX, "else": SYS})
    )
    assert capacities.port_gbytes_per_s == (48.0, 24.0, 12.0, 12.0)
    assert capacities.switch_groups == ((0b0011, 24.0), (0b1100, 12.0))


@pytest.mark.parametrize(
    ("cpu", "gpu", "rate"),
    [
        pytest.param(CpuPlatform.AMD, V100, 16.0, id="known"),
        pytest.param(CpuPlatform.UNKNOWN, H100, 22.0, id="unknown, inferred from the GPUs' PCIe"),
        pytest.param(CpuPlatform.UNKNOWN, NAMELESS, 6.0, id="nothing known: the slowest"),
    ],
)
def test_socket_links_follow_the_platform(cpu, gpu, rate):
    """The socket link's rate comes from the platform, else from the age of the GPUs."""
    capacities = node_capacities(machine([gpu] * 2, levels={"else": SYS}, cpu=cpu))
    assert capacities.socket_groups == ((1, rate), (2, rate))


@pytest.mark.parametrize(
    ("gpus", "stated", "expected"),
    [
        pytest.param([RTX_4090] * 2, P2pAccess.UNKNOWN, False, id="4090 has none"),
        pytest.param([RTX_4090] * 2, P2pAccess.YES, True, id="a patched driver says so"),
        pytest.param([A100] * 2, P2pAccess.NO, False, id="switched off by the platform"),
        pytest.param([A100] * 2, P2pAccess.UNKNOWN, True, id="A100 has it"),
        pytest.param([NAMELESS] * 2, P2pAccess.UNKNOWN, True, id="unknown counts as there"),
        pytest.param([A100, RTX_4090], P2pAccess.UNKNOWN, False, id="one without is enough"),
    ],
)
def test_p2p(gpus, stated, expected):
    """What the node reports outranks the model."""
    assert node_capacities(machine(gpus, p2p=stated)).is_p2p is expected


def test_a_single_gpu():
    """The smallest node has a port, a socket and nothing else."""
    capacities = node_capacities(machine([V100]))
    assert capacities.n == 1
    assert capacities.units == ((0,),)
    assert capacities.adjacency == (0,)
    assert capacities.switch_groups == ()
    assert capacities.socket_groups == ((1, 6.0),)


def test_instances_of_one_gpu_share_what_their_levels_say():
    """MIG instances carry a parent; capacities follow links and levels alone."""
    slices = [Gpu(model="NVIDIA A100-SXM4-40GB MIG 1g.5gb", parent="GPU-a") for _ in range(2)]
    capacities = node_capacities(machine(slices, levels={"else": PIX}))
    assert capacities.port_gbytes_per_s == (24.0, 24.0)
    assert capacities.switch_groups == ((0b11, 24.0),)


@settings(max_examples=up_to(40))
@given(node_topologies())
def test_any_topology_has_sound_capacities(topology):
    """Whatever a node publishes: symmetric units in range, disjoint sockets, links both ways."""
    capacities = node_capacities(topology)
    n = topology.n_gpus
    for i in range(n):
        for j in range(n):
            assert capacities.units[i][j] == capacities.units[j][i]
            assert 0 <= capacities.units[i][j] <= MAX_UNITS
            joined = topology.links[i][j] not in {NO_LINK, UNKNOWN_LINK}
            assert bool(capacities.adjacency[i] >> j & 1) is joined
            switched = any(
                ports.members >> i & ports.members >> j & 1 for ports in capacities.fabrics
            )
            assert bool(capacities.units[i][j]) is (joined and not switched)
    sockets = [group for group, _ in capacities.socket_groups]
    assert sum(sockets) == mask_of(range(n))
    assert all(rate > 0 for _, rate in capacities.switch_groups + capacities.socket_groups)
    assert min(capacities.port_gbytes_per_s) > 0
