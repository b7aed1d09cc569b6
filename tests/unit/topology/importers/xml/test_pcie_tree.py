"""PCIe levels from places in a tree of switches (NCCL) or of ports (hwloc)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.importers.xml.pcie_tree import PciPlace, PciTree
from topology.model import PcieLevel

SWITCHES = PciTree(bridges_per_switch=1, same_root=PcieLevel.NODE)
PORTS = PciTree(bridges_per_switch=2, same_root=PcieLevel.PHB)


def place(*bridges: str, root: str = "r0", numa: int | None = 0, is_hidden: bool = False):
    """A place below the given bridges."""
    return PciPlace(root=root, bridges=bridges, numa_node=numa, is_hidden=is_hidden)


@pytest.mark.parametrize(
    ("tree", "a", "b", "level"),
    [
        pytest.param(SWITCHES, place("s1"), place("s1"), "PIX", id="one switch is PIX"),
        pytest.param(
            SWITCHES, place("s1", "s2"), place("s1", "s3"), "PXB", id="three switches are PXB"
        ),
        pytest.param(
            SWITCHES, place("s1"), place("s1", "s2"), "PXB", id="a switch below one is PXB"
        ),
        pytest.param(
            SWITCHES,
            place("s1"),
            place("s2"),
            "NODE",
            id="two roots of a CPU are what the file means",
        ),
        pytest.param(SWITCHES, place(), place("s2"), "NODE", id="a device right below the CPU"),
        pytest.param(
            PORTS,
            place("root", "up", "d1"),
            place("root", "up", "d2"),
            "PIX",
            id="two ports of a switch",
        ),
        pytest.param(
            PORTS, place("root"), place("root"), "PIX", id="two functions below a root port"
        ),
        pytest.param(
            PORTS,
            place("root", "up", "d1", "up2", "d3"),
            place("root", "up", "d2"),
            "PXB",
            id="a second switch on one side",
        ),
        pytest.param(
            PORTS, place("root1"), place("root2"), "PHB", id="root ports of one host bridge"
        ),
        pytest.param(
            PORTS, place("p"), place("p", root="r1"), "NODE", id="host bridges of one NUMA node"
        ),
        pytest.param(
            PORTS,
            place("p"),
            place("p", root="r1", numa=1),
            "SYS",
            id="host bridges of two NUMA nodes",
        ),
        pytest.param(
            PORTS, place("p"), place("p", root="r1", numa=None), "?", id="an unknown NUMA node"
        ),
        pytest.param(
            PORTS,
            place(is_hidden=True),
            place(is_hidden=True),
            "?",
            id="a hypervisor's root bus hides the switch",
        ),
        pytest.param(
            PORTS,
            place(is_hidden=True),
            place("p", root="r1"),
            "?",
            id="one hidden device is enough",
        ),
        pytest.param(
            PORTS,
            place(is_hidden=True),
            place(root="r1", numa=1, is_hidden=True),
            "SYS",
            id="hidden devices of two NUMA nodes are still far apart",
        ),
    ],
)
def test_level(tree, a, b, level):
    """The level follows from what two paths share, and is the same in both directions."""
    assert tree.level(a, b) is PcieLevel(level)
    assert tree.level(b, a) is PcieLevel(level)


PLACES = st.builds(
    place,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["c", "d"]),
    root=st.sampled_from(["r0", "r1"]),
    numa=st.sampled_from([0, 1, None]),
    is_hidden=st.booleans(),
)


@given(st.lists(PLACES, min_size=1, max_size=6))
def test_matrix_is_symmetric_with_self_on_the_diagonal(places):
    """The model refuses any other matrix."""
    matrix = SWITCHES.matrix(places)
    for i, row in enumerate(matrix):
        assert row[i] is PcieLevel.SELF
        assert [matrix[j][i] for j in range(len(places))] == list(row)


def test_row_has_one_level_per_place():
    """A NIC is no GPU, so its row holds no SELF."""
    assert SWITCHES.row(place("s1"), [place("s1"), place("s2")]) == (PcieLevel.PIX, PcieLevel.NODE)
