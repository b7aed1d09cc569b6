"""Stranded GPUs, on free sets worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.demo.stranding import Stranding
from topology.recordings import load_recording
from topology.select import build_tables


@pytest.mark.parametrize(
    ("name", "free", "size", "expected"),
    [
        pytest.param("8x-a6000-bridged", 0b11, 2, 0, id="a bridged pair"),
        pytest.param("8x-a6000-bridged", 0b100001, 2, 2, id="two GPUs without their bridges"),
        pytest.param("8x-a6000-bridged", 0b11, 4, 2, id="a pair is no four"),
        pytest.param("8x-a6000-bridged", 0, 2, 0, id="nothing free"),
        pytest.param("dgx-1-v100", 0b11101110, 4, 6, id="broken quads hold no near-best four"),
        pytest.param("dgx-1-v100", 0b11101110, 2, 0, id="but three pairs"),
        pytest.param("gb200-tray", 0b111, 2, 1, id="three of a tray leave one over"),
        pytest.param("gb200-tray", 0b1111, 8, 0, id="too small a machine counts none"),
    ],
)
def test_stranded(name, free, size, expected):
    """What the best packing of disjoint near-best sets leaves over."""
    assert Stranding().count(build_tables(load_recording(name)), free, size) == expected
