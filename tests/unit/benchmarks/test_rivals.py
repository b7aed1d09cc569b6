"""What every rival owes: a choice inside what is free, on a node small enough to see."""

from __future__ import annotations

import pytest

from benchmarks.measured import topology_from_labels
from benchmarks.rivals import MAPA_GREEDY, MAPA_PRESERVE, NVIDIA_BEST_EFFORT, PLAIN_KUBELET

# A triangle 0-1-2 of single links, and a chain 2-3 of two links.
LABELS = [
    ["X", "NV1", "NV1", "SYS"],
    ["NV1", "X", "NV1", "SYS"],
    ["NV1", "NV1", "X", "NV2"],
    ["SYS", "SYS", "NV2", "X"],
]


@pytest.mark.parametrize(
    "rival",
    [PLAIN_KUBELET, NVIDIA_BEST_EFFORT, MAPA_GREEDY, MAPA_PRESERVE],
    ids=lambda rival: rival.name,
)
def test_every_rival_stays_inside_what_is_free(rng, rival):
    """A choice has the requested size and lies in the free set."""
    topology = topology_from_labels(LABELS, model="Tesla V100-SXM2-32GB", is_switched=False)
    assert rival.choose(topology, 0b1110, 4, rng) is None
    for free in range(1, 16):
        for size in range(1, free.bit_count() + 1):
            chosen = rival.choose(topology, free, size, rng)
            assert chosen is None or (chosen & ~free == 0 and chosen.bit_count() == size)
