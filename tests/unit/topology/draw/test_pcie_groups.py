"""Groups of GPUs by PCIe level, and levels that bound each other."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given

from tests.strategies import node_topologies
from topology.draw.pcie_groups import pcie_groups
from topology.model import NodeTopology, PcieLevel
from topology.recordings import load_recording, recording_names

LEVELS = [one for one in PcieLevel if one not in {PcieLevel.SELF, PcieLevel.UNKNOWN}]


def test_levels_that_nvlink_hides_are_bounded_by_the_others() -> None:
    """Two GPUs within PXB of a third are within PXB of each other, whatever the table prints."""
    machine = load_recording("8x-a6000-bridged")
    assert machine.pcie[0][1] is PcieLevel.UNKNOWN
    assert pcie_groups(machine, PcieLevel.PXB) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_nics_bound_levels_too() -> None:
    """On NVSwitch machines only the NICs' rows show how far two GPUs are apart on PCIe."""
    machine = load_recording("8x-mi50-pcie-2nic")
    assert pcie_groups(machine, PcieLevel.PXB) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_a_group_at_an_unknown_level_is_one_gpu() -> None:
    """Unknown is no distance: nothing is surely within it."""
    assert pcie_groups(load_recording("gb200-tray"), PcieLevel.UNKNOWN) == ((0,), (1,), (2,), (3,))


@pytest.mark.parametrize("name", recording_names())
def test_known_levels_of_shipped_machines_form_a_tree(name: str) -> None:
    """Groups by a level hold no pair that is recorded as farther apart."""
    machine = load_recording(name)
    for level in LEVELS:
        for group in pcie_groups(machine, level):
            for i, j in combinations(group, 2):
                known = machine.pcie[i][j]
                assert known is PcieLevel.UNKNOWN or known.rank <= level.rank, (i, j)


@given(topology=node_topologies(max_gpus=7))
def test_groups_are_nested(topology: NodeTopology) -> None:
    """Each group lies in one of the next level, and a pair within a level shares its group."""
    below = [{i} for i in range(topology.n_gpus)]
    for level in LEVELS:
        groups = [set(one) for one in pcie_groups(topology, level)]
        assert sorted(gpu for one in groups for gpu in one) == list(range(topology.n_gpus))
        assert all(any(one >= inner for one in groups) for inner in below)
        for i, j in combinations(range(topology.n_gpus), 2):
            if topology.pcie[i][j].rank <= level.rank:
                assert any({i, j} <= one for one in groups)
        below = groups
