"""The small rivals and the bounds, each rule once."""

from __future__ import annotations

import pytest

from benchmarks.measured import MeasuredMachine, topology_from_labels
from benchmarks.rivals import (
    MAPA_EFFECTIVE,
    MAPA_GREEDY,
    MAPA_PRESERVE,
    NVIDIA_BEST_EFFORT,
    PLAIN_KUBELET,
    LabelCeiling,
    measured_oracle,
)
from benchmarks.rivals.bounds import label_classes

# A triangle 0-1-2 of single links, and a chain 2-3 of two links: the sums prefer sets with 2-3.
LABELS = [
    ["X", "NV1", "NV1", "SYS"],
    ["NV1", "X", "NV1", "SYS"],
    ["NV1", "NV1", "X", "NV2"],
    ["SYS", "SYS", "NV2", "X"],
]
MEASURED = {0b0111: 40.0, 0b1011: 4.0, 0b1101: 30.0, 0b1110: 20.0}


@pytest.fixture
def topology():
    """A triangle with a tail."""
    return topology_from_labels(LABELS, model="Tesla V100-SXM2-32GB", is_switched=False)


@pytest.mark.parametrize(
    "rival",
    [PLAIN_KUBELET, NVIDIA_BEST_EFFORT, MAPA_GREEDY, MAPA_PRESERVE, MAPA_EFFECTIVE],
    ids=lambda rival: rival.name,
)
def test_every_rival_stays_inside_what_is_free(rng, topology, rival):
    """A choice has the requested size and lies in the free set."""
    assert rival.choose(topology, 0b1110, 4, rng) is None
    for free in range(1, 16):
        for size in range(1, free.bit_count() + 1):
            chosen = rival.choose(topology, free, size, rng)
            assert chosen is None or (chosen & ~free == 0 and chosen.bit_count() == size)


def test_oracle_takes_the_best_measured(rng):
    """It knows the measurement; a single GPU has none and goes to the lowest id."""
    oracle = measured_oracle(MEASURED)
    assert oracle(0b1110, 3, rng) == 0b1110
    assert oracle(0b1111, 3, rng) == 0b0111
    assert oracle(0b1110, 1, rng) == 0b0010
    assert oracle(0b0001, 2, rng) is None


def test_label_ceiling_cannot_distinguish_equal_labels(topology):
    """{0,2,3} and {1,2,3} have the same labels: both are candidates, at their mean."""
    machine = MeasuredMachine("small", topology, MEASURED, None)
    ceiling = LabelCeiling(machine)
    assert ceiling.candidates(0b1111, 3) == (0b0111,)
    classes = label_classes(topology, 3)
    assert classes[0b1101] == classes[0b1110]
    assert len(set(classes.values())) == 3
    small = MeasuredMachine("small", topology, {**MEASURED, 0b0111: 1.0}, None)
    assert LabelCeiling(small).candidates(0b1111, 3) == (0b1101, 0b1110)
