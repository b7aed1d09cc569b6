"""The order of nodes, and the order as scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.placement import rank_fit, scores
from extender.placement.node_order import (
    DEFAULT_LOSS_BOUNDS,
    EQUAL,
    TOP_SCORE,
    Rank,
    unranked,
)
from extender.protocol import Shape
from topology.annotations import Affinity, NicRule, PlacementPolicy, Prefer
from topology.select import ContainerRequest, PodFit, Selected
from topology.value import Limit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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
            PlacementPolicy(),
            (fit(selected(), cost=3.6), 8, 1.0),
            (fit(selected(), cost=3.2), 8, 5.4),
            id="cheap GPUs before scarce ones, though these lose less of their remainder",
        ),
        pytest.param(
            PlacementPolicy(Affinity.NONE),
            (fit(selected(), cost=3.6), 8, 0.4),
            (fit(selected(), cost=3.2), 8, 1.0),
            id="also for a pod that is packed",
        ),
        pytest.param(
            FASTEST,
            (fit(selected(speed=100.0), cost=1.0), 8, 9.0),
            (fit(selected(speed=100.0), cost=2.0), 8, 1.0),
            id="fastest: what GPUs are worth does not count",
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
    keys = [
        rank_fit(one, shape(policy), n_free=free, worth=worth[0] if worth else 1.0).key
        for one, free, *worth in (better, worse)
    ]
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


def test_a_nic_that_is_not_requested_does_not_count():
    """Only a pod that requests it prefers it."""
    ranks = [rank_fit(fit(selected(nic=nic)), SHAPE, n_free=8) for nic in (True, False)]
    assert ranks[0] == ranks[1]


def score(
    ranks: Mapping[Any, Rank], size: int = 4, *, soft: bool = False, avoided: Collection[Any] = ()
) -> dict[Any, int]:
    """Scores with the default loss bounds."""
    return scores(
        ranks,
        size,
        loss_bounds=DEFAULT_LOSS_BOUNDS,
        has_soft_wishes=soft,
        avoided=avoided,
    )


def test_unknown_topology_comes_last_and_scores_nothing():
    """It may serve as a last resort only."""
    ranks = {1: unranked(1), 2: Rank((3, 3), 0.0, 9.0, 8)}
    assert ranks[2].key < ranks[1].key
    assert score(ranks) == {1: 0, 2: 2}


def rank(
    missed: int = 0, loss_class: int = 0, *, cost=1.0, free: int = 8, speed=0.0, worth=1.0
) -> Rank:
    """A rank; what is not given is that of the best."""
    return Rank((missed, loss_class), speed, cost, free, worth)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        pytest.param([], [], id="no node"),
        pytest.param([rank()], [10], id="one node"),
        pytest.param(
            [rank(loss_class=one) for one in (0, 1, 2, 3, 9)],
            [10, 8, 6, 4, 3],
            id="each loss class has two levels, those after the fourth are in its band",
        ),
        pytest.param([rank(loss_class=2)], [6], id="a class's level, though no node is better"),
        pytest.param(
            [rank(), rank(1), rank(2), rank(3)],
            [10, 2, 1, 1],
            id="a missed wish is below every loss; of those the one that misses least is first",
        ),
        pytest.param(
            [rank(2, 3, cost=0.1), rank(2, 1, cost=9.0)],
            [1, 2],
            id="among missed wishes the loss class decides before economy",
        ),
        pytest.param(
            [rank(cost=0.0), rank(cost=1.0), rank(cost=9.0)],
            [10, 9, 9],
            id="economy has one level, however large the difference",
        ),
        pytest.param([rank(cost=0.0), rank(cost=0.07)], [10, 10], id="under 2 % of the pod's size"),
        pytest.param([rank(cost=0.0), rank(cost=0.09)], [10, 9], id="over 2 % of the pod's size"),
        pytest.param(
            [rank(cost=9.0), rank(loss_class=1, cost=0.0)],
            [10, 8],
            id="economy is compared within a loss class",
        ),
        pytest.param(
            [rank(free=8), rank(free=4)], [9, 10], id="equal remainders: the fewest free GPUs"
        ),
        pytest.param(
            [rank(cost=1.0, free=8), rank(cost=1.05, free=4), rank(cost=9.0, free=1)],
            [9, 10, 9],
            id="free GPUs are compared among those of equal cost",
        ),
        pytest.param(
            [rank(cost=3.2, worth=5.0), rank(cost=3.6)], [9, 10], id="a cost counts by the worth"
        ),
        pytest.param(
            [rank(cost=1.0, worth=5.0), rank(cost=1.07, worth=5.0)],
            [10, 10],
            id="2 % are of what the pod takes, which is worth more on the better machine",
        ),
        pytest.param(
            [rank(speed=one) for one in (400.0, 393.0, 380.0, 300.0, 100.0)],
            [10, 10, 8, 6, 4],
            id="fastest: loss against the fastest node of the request",
        ),
        pytest.param(
            [rank(speed=400.0, cost=9.0), rank(speed=396.0, cost=1.0)],
            [9, 10],
            id="fastest: 2 % are equal, economy decides",
        ),
        pytest.param(
            [rank(speed=400.0), rank(speed=380.0, cost=9.0), rank(speed=364.0, cost=1.0)],
            [10, 8, 7],
            id="fastest: inside a class the faster one is first, whatever it costs",
        ),
    ],
)
def test_scores(ranks, expected):
    """One row per level, and per rule within a level."""
    assert [score(dict(enumerate(ranks)))[i] for i in range(len(ranks))] == expected


def test_the_bounds_of_fastest_are_the_settings():
    """They are the loss bounds."""
    ranks = {"a": rank(speed=100.0), "b": rank(speed=60.0)}
    found = scores(ranks, 4, loss_bounds=(0.5,), has_soft_wishes=False)
    assert found == {"a": 10, "b": 9}


def test_economy_does_not_count_beside_a_pods_soft_wishes():
    """kube-scheduler scores those, and one level outweighs all that it adds."""
    cheap, costly, far, without = rank(cost=0.0, free=1), rank(cost=9.0), rank(0, 1), rank(2)
    ranks = {"cheap": cheap, "costly": costly, "far": far, "without": without}
    assert score(ranks, soft=True) == {"cheap": 10, "costly": 10, "far": 8, "without": 2}


def test_economy_prefers_no_node_with_a_soft_taint():
    """What an administrator taints is avoided among equal sets, not beside a worse set."""
    ranks = {"tainted": rank(cost=0.0), "plain": rank(cost=9.0), "far": rank(loss_class=1)}
    assert score(ranks, avoided={"tainted"}) == {"tainted": 9, "plain": 10, "far": 8}
    assert score(ranks, avoided={"tainted", "plain"}) == {"tainted": 10, "plain": 9, "far": 8}


RANKS = st.builds(
    Rank,
    st.tuples(st.integers(0, 3), st.integers(0, 9)),
    st.just(0.0),
    st.floats(-1, 8),
    st.integers(0, 8),
)


@given(st.dictionaries(st.integers(), RANKS, max_size=12), st.integers(1, 8), st.booleans())
def test_scores_are_in_range_and_never_turn_the_order_round(ranks, size, soft):
    """What is better by more than the tolerance never scores less; 0 stays for the unknown."""
    found = score(ranks, size, soft=soft)
    assert set(found) == set(ranks)
    assert set(found.values()) <= set(range(1, TOP_SCORE + 1))
    assert {type(one) for one in found.values()} <= {int}
    for a, rank in ranks.items():
        for b, other in ranks.items():
            is_apart = rank.remainder_cost_gpus < other.remainder_cost_gpus - 2 * EQUAL * size
            if rank.step < other.step or (rank.step == other.step and is_apart):
                assert found[a] >= found[b]


@given(st.dictionaries(st.integers(), RANKS, min_size=2, max_size=12), st.integers(1, 8))
def test_a_level_does_not_depend_on_the_other_nodes(ranks, size):
    """Without the others a node has the higher level of the same two."""
    for key, one in ranks.items():
        alone = score({key: one}, size)[key]
        assert alone % 2 == 0
        assert score(ranks, size)[key] in {alone, alone - 1}
