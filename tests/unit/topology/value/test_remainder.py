"""What is left behind: disjoint sets against trying them all, and how R must behave."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.machines import direct_mesh, relabelled
from topology.errors import InvalidRequest
from topology.model import Gpu
from topology.recordings import load_recording
from topology.value import (
    DEFAULT_DEMAND,
    Demand,
    gpus_of,
    mask_index,
    mask_of,
    node_capacities,
    remainder_table,
)
from topology.value.remainder import disjoint_values
from topology.value.value_table import value_table


def best_disjoint(value, free, d):
    """Try every way to put disjoint d-sets into the free GPUs."""
    best = 0.0
    for group in combinations(gpus_of(free), d):
        mask = mask_of(group)
        # Sets are taken in order of their lowest member: those below it stay out for good.
        later = free & ~mask & ~((1 << group[0]) - 1)
        best = max(best, value[mask] + best_disjoint(value, later, d))
    return best


@st.composite
def set_values(draw, *, max_gpus):
    """Draw a value for every mask of some GPUs, 0 for fewer than two members."""
    n = draw(st.integers(1, max_gpus))
    figures = st.sampled_from([0.0, 1.0, 6.0, 7.5, 42.0, 50.0])
    value = np.array(draw(st.lists(figures, min_size=1 << n, max_size=1 << n)))
    value[mask_index(n).size < 2] = 0.0
    return value, n


@settings(max_examples=up_to(60))
@given(set_values(max_gpus=6), st.integers(1, 4))
def test_disjoint_values_equal_every_way_to_take_sets(drawn, d):
    """The dynamic program misses no combination of disjoint sets; single GPUs count one each."""
    value, n = drawn
    worth = np.where(mask_index(n).size == 1, 1.0, value) if d == 1 else value
    found = disjoint_values(value, n, d)
    assert found.tolist() == [best_disjoint(worth, free, d) for free in range(1 << n)]


def test_three_disjoint_sets_of_three_among_nine():
    """More groups than two must not be lost."""
    rng = np.random.default_rng(5)
    value = np.where(mask_index(9).size == 3, rng.integers(1, 50, 1 << 9), 0).astype(float)
    found = disjoint_values(value, 9, 3)
    for free in (0b111111111, 0b111111011, 0b101111110, 0b011010111):
        assert found[free] == best_disjoint(value, free, 3)


def test_eight_disjoint_pairs_among_sixteen():
    """Sixteen GPUs hold eight pairs: the count at which a peer's search broke."""
    value = np.zeros(1 << 16)
    for i, j in combinations(range(16), 2):
        value[1 << i | 1 << j] = 50.0 if i // 2 == j // 2 else 6.0
    found = disjoint_values(value, 16, 2)
    assert found[-1] == 8 * 50.0
    assert found[0b0101_0101_0101_0101] == 4 * 6.0
    assert found[0b0111] == 50.0


DEMANDS = st.builds(
    lambda weights: Demand(tuple(sorted(weights.items()))),
    st.dictionaries(st.integers(1, 9), st.floats(0.01, 100), min_size=1, max_size=4),
)


@settings(max_examples=up_to(60))
@given(set_values(max_gpus=7), DEMANDS)
def test_remainder_is_a_share_that_only_grows(drawn, demand):
    """R is 0 of nothing, 1 of all, and one more free GPU never lowers it."""
    value, n = drawn
    share = remainder_table(value, n, demand)
    assert share[0] == 0.0
    assert share[-1] == 1.0
    for i in range(n):
        without = mask_index(n).masks[mask_index(n).masks >> i & 1 == 0]
        assert (share[without | 1 << i] >= share[without]).all()


@settings(max_examples=up_to(30))
@given(set_values(max_gpus=6), DEMANDS)
def test_remainder_follows_its_definition(drawn, demand):
    """Sum up weight x P_d(F) / P_d(all) over the sizes that the machine can hold at all."""
    value, n = drawn
    share = remainder_table(value, n, demand)
    everything = (1 << n) - 1
    worth = np.where(mask_index(n).size == 1, 1.0, value)
    whole = {d: best_disjoint(worth, everything, d) for d, _ in demand.sizes}
    terms = [(d, weight) for d, weight in demand.sizes if whole[d] > 0]
    for free in range(0, 1 << n, 5):
        if terms:
            total = sum(weight * best_disjoint(worth, free, d) / whole[d] for d, weight in terms)
            expected = total / sum(weight for _, weight in terms)
        else:
            expected = free.bit_count() / n
        assert share[free] == pytest.approx(expected, abs=2e-9)


@pytest.mark.parametrize("name", ["dgx-1-v100", "8x-a6000-bridged", "summit", "8x-rtx4090"])
def test_numbering_never_changes_what_is_left(name):
    """The remainder of a set must not hang on the order the driver lists GPUs in."""
    topology = load_recording(name)
    n = topology.n_gpus
    order = [(5 * i + 2) % n for i in range(n)]
    before, after = (
        remainder_table(value_table(node_capacities(node)).value, n)
        for node in (topology, relabelled(topology, order))
    )
    bits = mask_index(n).masks[:, None] >> np.arange(n) & 1
    np.testing.assert_array_equal(after, before[(bits << np.array(order)).sum(axis=1)])


def test_single_gpus_leave_whole_bridges():
    """On bridged pairs a single GPU costs least beside one that is taken already."""
    bridged = load_recording("8x-a6000-bridged")
    value = value_table(node_capacities(bridged)).value
    share = remainder_table(value, 8)
    partner = next(j for j in range(8) if bridged.links[0][j].is_up)
    free = 0b11111110
    costs = {i: share[free] - share[free ^ 1 << i] for i in gpus_of(free)}
    assert min(costs, key=lambda i: costs[i]) == partner


@pytest.mark.parametrize(
    ("n", "demand", "expected"),
    [
        pytest.param(1, DEFAULT_DEMAND, [0.0, 1.0], id="one GPU"),
        pytest.param(2, Demand(((8, 1.0),)), [0.0, 0.5, 0.5, 1.0], id="no size fits: GPUs count"),
        pytest.param(2, Demand(((2, 1.0),)), [0.0, 0.0, 0.0, 1.0], id="pairs alone"),
        pytest.param(2, Demand(((1, 3.0), (2, 1.0))), [0.0, 0.375, 0.375, 1.0], id="weights"),
        pytest.param(
            2, Demand(((1, 1e308), (2, 1e308))), [0.0, 0.25, 0.25, 1.0], id="huge weights"
        ),
        pytest.param(
            2, Demand(((1, 5e-324), (2, 5e-324))), [0.0, 0.25, 0.25, 1.0], id="tiny weights"
        ),
    ],
)
def test_small_remainders(n, demand, expected):
    """Only the ratio of the weights counts."""
    mesh = direct_mesh(Gpu(), [[0 if i == j else 2 for j in range(n)] for i in range(n)])
    value = value_table(node_capacities(mesh)).value
    assert remainder_table(value, n, demand).tolist() == expected


def test_a_size_that_is_worth_nothing_does_not_count():
    """Where no pair has a value, what is left is counted by the other sizes."""
    share = remainder_table(np.zeros(4), 2, Demand(((1, 1.0), (2, 1.0))))
    assert share.tolist() == [0.0, 0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((), id="none"),
        pytest.param(((2, 1.0), (1, 1.0)), id="descending"),
        pytest.param(((2, 1.0), (2, 1.0)), id="twice"),
        pytest.param(((0, 1.0),), id="no GPU"),
        pytest.param(((513, 1.0),), id="more than a node has"),
        pytest.param(((4, 0.0),), id="weight zero"),
        pytest.param(((4, -1.0),), id="negative weight"),
        pytest.param(((4, float("nan")),), id="no number"),
        pytest.param(((4, float("inf")),), id="infinite"),
    ],
)
def test_a_demand_that_no_node_could_have_is_refused(sizes, check_message):
    """The message names the size, the weight and what was expected."""
    with pytest.raises(InvalidRequest) as caught:
        Demand(sizes)
    check_message(caught.value)
