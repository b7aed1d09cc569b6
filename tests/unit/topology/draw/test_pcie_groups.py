"""Groups of GPUs by PCIe level, and levels that bound each other."""

from __future__ import annotations

from topology.draw.pcie_groups import pcie_groups
from topology.model import PcieLevel
from topology.recordings import load_recording


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
