"""Which GPUs are nearest to a NIC."""

from __future__ import annotations

import pytest

from topology.model import PcieLevel, nearest_gpus

PIX, PXB, SYS, UNKNOWN = PcieLevel.PIX, PcieLevel.PXB, PcieLevel.SYS, PcieLevel.UNKNOWN


@pytest.mark.parametrize(
    ("levels", "numa_node", "numa_nodes", "expected"),
    [
        pytest.param((PXB, SYS, PXB), None, (0, 0, 0), (PXB, (0, 2)), id="all known"),
        pytest.param((UNKNOWN, PIX), None, (0, 0), (PIX, (1,)), id="none can be nearer"),
        pytest.param((UNKNOWN, PXB), None, (0, 0), (UNKNOWN, ()), id="one may be nearer"),
        pytest.param((UNKNOWN, SYS), 0, (0, 1), (UNKNOWN, (0,)), id="one at its NUMA node is"),
        pytest.param((UNKNOWN, PXB), 0, (1, 0), (PXB, (1,)), id="another NUMA node is far"),
        pytest.param((UNKNOWN, UNKNOWN), 0, (1, None), (UNKNOWN, ()), id="no level is known"),
    ],
)
def test_an_unknown_level_is_neither_near_nor_far(levels, numa_node, numa_nodes, expected):
    """It may be any, but between two NUMA nodes."""
    assert nearest_gpus(levels, numa_node, numa_nodes) == expected
