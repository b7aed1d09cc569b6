"""The small rivals and the bounds, each rule once."""

from __future__ import annotations

import pytest

from benchmarks.errors import TooLarge
from benchmarks.measured import MeasuredMachine, topology_from_labels
from benchmarks.rivals import (
    SET_RIVALS,
    BottleneckRing,
    CliqueSum,
    LabelCeiling,
    LowestIds,
    MeasuredOracle,
    PlainKubelet,
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
    ("rival", "free", "size", "expected"),
    [
        pytest.param(LowestIds, 0b1110, 2, 0b0110, id="lowest ids"),
        pytest.param(LowestIds, 0b1110, 4, None, id="lowest ids, too few"),
        pytest.param(PlainKubelet, 0b1110, 3, 0b1110, id="random, all of it"),
        pytest.param(PlainKubelet, 0b1110, 4, None, id="random, too few"),
        pytest.param(CliqueSum, 0b1111, 3, 0b1101, id="the sum takes the chain, lowest ids first"),
        pytest.param(CliqueSum, 0b1111, 2, 0b1100, id="the sum of a pair"),
        pytest.param(BottleneckRing, 0b1111, 3, 0b0111, id="the ring takes the triangle"),
        pytest.param(BottleneckRing, 0b1111, 1, 0b0001, id="one GPU has no ring"),
        pytest.param(BottleneckRing, 0b0001, 2, None, id="ring, too few"),
    ],
)
def test_chooses(rng, topology, rival, free, size, expected):
    """Each rule on a node small enough to see."""
    assert rival().choose(topology, free, size, rng) == expected


@pytest.mark.parametrize("rival", SET_RIVALS, ids=lambda rival: rival.__name__)
def test_every_rival_stays_inside_what_is_free(rng, topology, rival):
    """A choice has the requested size and lies in the free set."""
    policy = rival()
    for free in range(1, 16):
        for size in range(1, free.bit_count() + 1):
            chosen = policy.choose(topology, free, size, rng, is_sensitive=False)
            assert chosen is None or (chosen & ~free == 0 and chosen.bit_count() == size)


def test_bottleneck_ring_refuses_a_search_without_end(rng):
    """Rings of 10 among 16 GPUs are not enumerated."""
    labels = [["X" if i == j else "NV1" for j in range(16)] for i in range(16)]
    topology = topology_from_labels(labels, model="Tesla V100-SXM2-32GB", is_switched=False)
    with pytest.raises(TooLarge, match="bottleneck ring"):
        BottleneckRing().choose(topology, (1 << 10) - 1, 10, rng)


def test_oracle_takes_the_best_measured(rng):
    """It knows the measurement; a single GPU has none and goes to the lowest id."""
    oracle = MeasuredOracle(MEASURED)
    assert oracle.choose(0b1110, 3, rng) == 0b1110
    assert oracle.choose(0b1111, 3, rng) == 0b0111
    assert oracle.choose(0b1110, 1, rng) == 0b0010
    assert oracle.choose(0b0001, 2, rng) is None


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
