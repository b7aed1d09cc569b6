"""The order of nodes, and the order as scores."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.placement import rank_fit, scores
from extender.placement.node_order import EQUAL, TOP_SCORE, Rank, unranked
from extender.protocol import Shape
from topology.annotations import Affinity, NicRule, PlacementPolicy, Prefer
from topology.select import ContainerRequest, PodFit, Selected
from topology.value import Limit

SHAPE = Shape("nvidia.com/gpu", (ContainerRequest("0", 4),), PlacementPolicy())


def selected(n: int = 4, *, speed=100.0, loss=0.0, near=True, nic=False) -> Selected:
    """A chosen set of n GPUs."""
    return Selected(tuple(range(n)), speed, loss, near, nic, 1.0, 0, next(iter(Limit)))


def fit(*sets: Selected, cost=2.0) -> PodFit:
    """A pod's sets; the worst is the one with the largest loss."""
    worst = max(sets, key=lambda one: one.loss)
    return PodFit(tuple((str(i), one) for i, one in enumerate(sets)), 0b1111, worst, cost)


def shape(policy: PlacementPolicy, *sizes: int) -> Shape:
    """A shape of app containers."""
    requests = tuple(ContainerRequest(str(i), size) for i, size in enumerate(sizes or (4,)))
    return Shape("nvidia.com/gpu", requests, policy)


@pytest.mark.parametrize(
    ("loss", "loss_class"),
    [(0.0, 0), (0.02, 0), (0.0200001, 1), (0.10, 1), (0.11, 2), (0.30, 2), (0.31, 3), (1.0, 3)],
)
def test_loss_falls_into_classes_whose_bounds_belong_below(loss, loss_class):
    """Nodes of one class compare by the remainder."""
    assert rank_fit(fit(selected(loss=loss)), SHAPE, n_free=8).step == (0, loss_class)


def test_loss_bounds_are_configurable():
    """They are a setting."""
    rank = rank_fit(fit(selected(loss=0.3)), SHAPE, n_free=8, loss_bounds=(0.5,))
    assert rank.step == (0, 0)


NVLINK = PlacementPolicy(Affinity.NVLINK)
FASTEST = PlacementPolicy(prefer=Prefer.FASTEST)


@pytest.mark.parametrize(
    ("policy", "better", "worse"),
    [
        pytest.param(
            NVLINK,
            (fit(selected(loss=0.9)), 8),
            (fit(selected(near=False), cost=0.0), 1),
            id="an NVLink set beats any other, whatever it loses",
        ),
        pytest.param(
            PlacementPolicy(),
            (fit(selected(speed=20.0, loss=0.0), cost=9.0), 8),
            (fit(selected(speed=400.0, loss=0.5)), 4),
            id="the machine's own best beats more GB/s elsewhere",
        ),
        pytest.param(
            FASTEST,
            (fit(selected(speed=400.0, loss=0.5), cost=9.0), 8),
            (fit(selected(speed=20.0)), 4),
            id="fastest compares GB/s",
        ),
        pytest.param(
            FASTEST,
            (fit(selected(speed=100.0), cost=1.0), 8),
            (fit(selected(speed=100.5), cost=2.0), 8),
            id="fastest: 0.5 % more GB/s are the same, the remainder decides",
        ),
        pytest.param(
            FASTEST,
            (fit(selected(speed=100.0), selected(speed=90.0, loss=0.1)), 8),
            (fit(selected(speed=300.0), selected(speed=50.0)), 8),
            id="fastest compares the slowest container",
        ),
        pytest.param(
            PlacementPolicy(),
            (fit(selected(loss=0.019), cost=1.0), 8),
            (fit(selected(loss=0.0), cost=1.5), 4),
            id="within a class the remainder decides",
        ),
        pytest.param(
            PlacementPolicy(),
            (fit(selected()), 4),
            (fit(selected()), 8),
            id="then the fewest free GPUs",
        ),
        pytest.param(
            PlacementPolicy(Affinity.NONE),
            (fit(selected(speed=5.0, loss=0.9), cost=1.0), 8),
            (fit(selected(), cost=1.5), 4),
            id="who does not care gets what hurts least",
        ),
        pytest.param(
            PlacementPolicy(min_bandwidth_gbytes_per_s=5.0),
            (fit(selected(speed=5.0, loss=0.9), cost=1.0), 8),
            (fit(selected(), cost=1.5), 4),
            id="a floor without an affinity: enough is enough",
        ),
    ],
)
def test_the_better_node_comes_first(policy, better, worse):
    """One row per rule of the order."""
    keys = [rank_fit(one, shape(policy), n_free=free).key for one, free in (better, worse)]
    assert keys[0] < keys[1]


def test_single_gpus_are_packed():
    """A single GPU has no peer: loss and affinity do not count."""
    one = fit(selected(1, speed=0.0), cost=0.5)
    assert rank_fit(one, shape(NVLINK, 1), n_free=3) == Rank((0, 0), 0.0, 0.5, 3)


def test_a_single_gpu_beside_a_set_does_not_spoil_it():
    """Only containers with two GPUs or more have an affinity."""
    mixed = fit(selected(4), selected(1, speed=0.0, near=False))
    assert rank_fit(mixed, shape(NVLINK, 4, 1), n_free=8).step == (0, 0)


@pytest.mark.parametrize(
    ("affinity", "better", "worse"),
    [
        pytest.param(
            Affinity.ANY, selected(nic=True, loss=0.5), selected(), id="a NIC counts before loss"
        ),
        pytest.param(
            Affinity.NVLINK,
            selected(),
            selected(nic=True, near=False),
            id="the affinity counts before a NIC",
        ),
        pytest.param(
            Affinity.NONE, selected(nic=True), selected(), id="also for a pod that is packed"
        ),
    ],
)
def test_a_preferred_nic_orders_nodes(affinity, better, worse):
    """The wish is part of the node's rank, below the closeness of the GPUs."""
    wish = PlacementPolicy(affinity, nic=NicRule.PREFERRED)
    keys = [rank_fit(fit(one), shape(wish), n_free=8).key for one in (better, worse)]
    assert keys[0] < keys[1]


def test_a_nic_that_nobody_wants_does_not_count():
    """Only a pod that asks for it is drawn to it."""
    ranks = [rank_fit(fit(selected(nic=nic)), SHAPE, n_free=8) for nic in (True, False)]
    assert ranks[0] == ranks[1]


def test_unknown_topology_comes_last_and_scores_nothing():
    """It may serve as a last resort only."""
    ranks = {1: unranked(1), 2: Rank((2, 3), 0.0, 9.0, 8)}
    assert ranks[2].key < ranks[1].key
    assert scores(ranks, 4) == {1: 0, 2: 10}


def step(*costs: float, loss_class: int = 0, free: int = 8) -> dict[str, Rank]:
    """Ranks of one class by their remainder cost."""
    return {f"{loss_class}/{c}": Rank((0, loss_class), 0.0, c, free) for c in costs}


@pytest.mark.parametrize(
    ("ranks", "size", "expected"),
    [
        pytest.param({}, 1, [], id="nobody asked"),
        pytest.param(step(1.0), 4, [10], id="one node"),
        pytest.param(step(0.0, 1.0), 4, [10, 1], id="best and worst of one class take the scale"),
        pytest.param(step(0.0, 0.5, 1.0), 4, [10, 5, 1], id="in proportion to the remainder"),
        pytest.param(step(0.0, 0.07), 4, [10, 10], id="under 2 % of the pod's size is equal"),
        pytest.param(step(0.0, 0.09), 4, [10, 1], id="over 2 % of the pod's size is not"),
        pytest.param(
            step(0.0) | step(0.0, loss_class=1),
            4,
            [10, 5],
            id="two classes are half the scale each",
        ),
        pytest.param(
            step(0.0, 9.0) | step(0.0, 9.0, loss_class=3), 4, [10, 6, 5, 1], id="classes keep apart"
        ),
        pytest.param(
            {"a": Rank((0, 0), 0.0, 1.0, 4), "b": Rank((0, 0), 0.0, 1.0, 8)},
            4,
            [10, 1],
            id="equal remainders: fewest free GPUs",
        ),
        pytest.param(
            {
                "a": Rank((0, 0), 400.0, 9.0, 8),
                "b": Rank((0, 0), 200.0, 1.0, 8),
                "c": Rank((0, 0), 396.0, 1.0, 8),
            },
            4,
            [10, 1, 10],
            id="fastest: in proportion to GB/s, 2 % are equal",
        ),
    ],
)
def test_scores(ranks, size, expected):
    """The order on ten levels."""
    assert [scores(MappingProxyType(ranks), size)[key] for key in ranks] == expected


RANKS = st.builds(
    Rank,
    st.tuples(st.booleans(), st.integers(0, 9)),
    st.just(0.0),
    st.floats(-1, 8),
    st.integers(0, 8),
)


@given(st.dictionaries(st.integers(), RANKS, max_size=12), st.integers(1, 8))
def test_scores_are_in_range_and_never_turn_the_order_round(ranks, size):
    """What is better by more than the tolerance never scores less; 0 stays for the unknown."""
    found = scores(ranks, size)
    assert set(found) == set(ranks)
    assert set(found.values()) <= set(range(1, TOP_SCORE + 1))
    assert {type(score) for score in found.values()} <= {int}
    for a, rank in ranks.items():
        for b, other in ranks.items():
            is_apart = rank.remainder_cost_gpus < other.remainder_cost_gpus - 2 * EQUAL * size
            if rank.step < other.step or (rank.step == other.step and is_apart):
                assert found[a] >= found[b]
