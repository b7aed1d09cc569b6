"""Unknown is not zero: it never satisfies `min-bandwidth` and never ranks best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.machines import NVLINK, machine
from topology.annotations import PlacementPolicy
from topology.model import (
    NO_LINK,
    UNKNOWN_LINK,
    AcceleratorLink,
    CpuPlatform,
    Gpu,
    LinkKind,
    P2pAccess,
    PcieLevel,
)
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement
from topology.recordings import load_recording
from topology.select import Selected, Unfit, build_tables, select_set
from topology.value import Limit, is_known_set, known_table, mask_of, node_capacities
from topology.value.value_table import value_table

V100, L40S, NAMELESS = Gpu(model="Tesla V100-SXM2-32GB"), Gpu(model="NVIDIA L40S"), Gpu()
SYS: dict[tuple[int, int] | str, PcieLevel] = {"else": PcieLevel.SYS}
PIX: dict[tuple[int, int] | str, PcieLevel] = {"else": PcieLevel.PIX}
PHB: dict[tuple[int, int] | str, PcieLevel] = {"else": PcieLevel.PHB}
ANY_BANDWIDTH = PlacementPolicy(min_bandwidth_gbytes_per_s=0.1)


def dark_links(n: int) -> tuple[tuple[AcceleratorLink, ...], ...]:
    """All links unknown."""
    return tuple(tuple(UNKNOWN_LINK if i != j else NO_LINK for j in range(n)) for i in range(n))


@pytest.mark.parametrize(
    ("topology", "is_known"),
    [
        pytest.param(machine([V100] * 2, links={(0, 1): NVLINK(2)}), True, id="links and model"),
        pytest.param(
            machine([NAMELESS] * 2, links={(0, 1): NVLINK(2)}), False, id="no link generation"
        ),
        pytest.param(
            machine([Gpu(link_generation=2)] * 2, links={(0, 1): NVLINK(2)}),
            True,
            id="a generation without a model",
        ),
        pytest.param(
            machine([V100] * 2, links={(0, 1): NVLINK(None)}), False, id="links not counted"
        ),
        pytest.param(
            replace(machine([L40S] * 2, levels=SYS), cpu=CpuPlatform.AMD), True, id="all of PCIe"
        ),
        pytest.param(machine([L40S] * 2, levels=SYS), False, id="the socket link is unknown"),
        pytest.param(machine([L40S] * 2, levels=PIX), True, id="no socket link needed"),
        pytest.param(
            replace(machine([NAMELESS] * 2, levels=SYS), cpu=CpuPlatform.AMD),
            False,
            id="PCIe generation and P2P unknown",
        ),
        pytest.param(
            replace(machine([NAMELESS, L40S], levels=PIX), p2p=P2pAccess.YES),
            False,
            id="one GPU's port is unknown",
        ),
    ],
)
def test_a_lower_bound_needs_all_that_enters_the_value(topology, is_known):
    """`min-bandwidth` is a guarantee: it is not given on a guess."""
    found = select_set(build_tables(topology), available=3, size=2, policy=ANY_BANDWIDTH)
    assert isinstance(found, Selected if is_known else Unfit)


@pytest.mark.parametrize(
    "links",
    [
        pytest.param({}, id="as recorded"),
        pytest.param({"links": dark_links(8), "fabrics": ()}, id="links that were not read"),
    ],
)
@pytest.mark.parametrize("name", ["8x-rtx4090", "8x-l4", "8x-mi300x", "dgx-1-v100"])
def test_one_set_and_the_table_say_the_same(name, links):
    """Large nodes are rated set by set."""
    topology = replace(load_recording(name), **links)
    table = value_table(node_capacities(topology))
    each = [
        is_known_set(topology, mask, Limit(int(table.limit[mask])))
        for mask in range(1 << topology.n_gpus)
    ]
    assert known_table(topology, table).tolist() == each


@pytest.mark.parametrize(
    "measurement",
    [
        pytest.param(Measurement(pairs=(MeasuredPair(0, 1, 22.0),)), id="as a pair"),
        pytest.param(Measurement(sets=(MeasuredSet((0, 1), 22.0),)), id="as a set"),
    ],
)
def test_what_was_measured_is_known(measurement):
    """Measured beats labelled, also where no label is known."""
    dark = machine([NAMELESS] * 3)
    tables = build_tables(replace(dark, measurement=measurement))
    found = select_set(tables, available=7, size=2, policy=ANY_BANDWIDTH)
    assert isinstance(found, Selected)
    assert found.gpus == (0, 1)


def test_a_figure_of_unknown_message_size_is_taken_as_it_is():
    """Nothing is added for a start-up cost that was not measured."""
    measurement = Measurement(pairs=(MeasuredPair(0, 1, 22.0),))
    tables = build_tables(replace(load_recording("4x-l40s"), measurement=measurement))
    assert tables.value[mask_of((0, 1))] == pytest.approx(22.0)


@pytest.mark.parametrize(
    ("name", "size", "gpus"),
    [
        pytest.param("gb200-tray", 2, (0, 1), id="two GPUs of one Grace CPU"),
        pytest.param("dgx-2", 6, (0, 1, 2, 3, 4, 5), id="six on one socket"),
        pytest.param("dgx-2", 8, tuple(range(8)), id="eight on one socket"),
        pytest.param("8x-b200-gpu2-no-nvlink", 4, (4, 5, 6, 7), id="four on one socket"),
    ],
)
def test_a_hidden_level_inside_a_numa_node_is_nearer_than_another_socket(name, size, gpus):
    """On a switched fabric only closeness ranks sets; unknown must not count as farthest."""
    tables = build_tables(load_recording(name))
    found = select_set(tables, available=tables.all_gpus, size=size)
    assert isinstance(found, Selected)
    assert found.gpus == gpus


@pytest.mark.parametrize("n_links", [0, 1, 2])
def test_a_dying_link_never_makes_a_set_worth_less_than_none_would(n_links):
    """PCIe alone is there whatever the links do."""
    mi = Gpu(model="NVIDIA H100 80GB HBM3")
    links = {(0, 1): NVLINK(n_links)} if n_links else {}
    tables = build_tables(machine([mi] * 2, links=links, levels=PIX))
    bare = build_tables(machine([mi] * 2, levels=PIX))
    assert tables.value[3] >= bare.value[3]


def test_islands_that_pcie_joins_are_worth_no_more_than_the_weakest_of_them():
    """All data passes through every island."""
    mi60 = Gpu(model="AMD Instinct MI60")
    one_link = AcceleratorLink(LinkKind.XGMI, 1)
    hive = {(0, 1): one_link, (2, 3): one_link}
    tables = build_tables(machine([mi60] * 4, links=hive, levels=PHB))
    assert tables.value[0b1111] <= tables.value[0b0011]
