"""The second set of the order: beside every chosen set, and what decided."""

from itertools import combinations

import pytest

from topology.annotations import Affinity, NicRule, PlacementPolicy, Strength
from topology.recordings import load_recording
from topology.select import Criterion, Selected, build_tables, find_runner_up, select_set
from topology.value import mask_of

MACHINES = ("dgx-1-v100", "summit", "8x-mi50-pcie-2nic", "dgx-2")
POLICIES = (
    PlacementPolicy(),
    PlacementPolicy(affinity=Affinity.NVLINK, nic=NicRule.PREFERRED),
    PlacementPolicy(affinity=Affinity.NONE),
)


@pytest.mark.parametrize(
    ("name", "free", "size", "policy", "criterion"),
    [
        ("dgx-1-v100", (0, 2, 5), 2, PlacementPolicy(affinity=Affinity.NVLINK), "affinity"),
        ("dgx-1-v100", (0, 3, 5), 2, PlacementPolicy(), "value_class"),
        ("dgx-1-v100", (0, 1, 2), 1, PlacementPolicy(), "remainder"),
        ("dgx-1-v100", (0, 2, 5, 6), 3, PlacementPolicy(), "class_sum"),
        ("dgx-2", (0, 5, 6), 1, PlacementPolicy(nic=NicRule.PREFERRED), "nic"),
        ("dgx-1-v100", (0, 3, 4), 2, PlacementPolicy(), "closeness"),
        ("dgx-1-v100", (0, 1, 2, 3, 4, 5, 6, 7), 3, PlacementPolicy(), "indices"),
    ],
)
def test_the_first_difference_decides(name, free, size, policy, criterion):
    """Each key of the order has its name, and figures where it is a figure."""
    tables = build_tables(load_recording(name))
    found = find_runner_up(tables, available=mask_of(free), size=size, policy=policy)
    assert found is not None
    assert found.decided_by is Criterion(criterion)
    has_figures = criterion in {"value_class", "class_sum", "remainder", "raw_sum", "value"}
    assert (found.figures is not None) is has_figures


def test_a_single_set_has_no_runner_up():
    """All free GPUs."""
    tables = build_tables(load_recording("summit"))
    assert find_runner_up(tables, available=0b11, size=2) is None


@pytest.mark.parametrize("policy", POLICIES, ids=["any", "wishes", "remainder first"])
@pytest.mark.parametrize("name", MACHINES)
def test_any_set_is_compared_with_the_best_other_one(name, policy):
    """That of the order without it; better than every set but the chosen one, which is the best."""
    tables = build_tables(load_recording(name))
    free = tables.all_gpus & ~0b10
    best = select_set(tables, available=free, size=2, policy=policy)
    assert isinstance(best, Selected)
    second = find_runner_up(tables, available=free, size=2, policy=policy)
    assert second is not None
    assert not second.is_better
    for pair in combinations([gpu for gpu in range(tables.n_gpus) if free >> gpu & 1], 2):
        found = find_runner_up(tables, available=free, size=2, policy=policy, chosen=mask_of(pair))
        assert found is not None
        if pair == best.gpus:
            assert found == second
        else:
            assert (found.gpus, found.is_better) == (best.gpus, True)


def test_a_set_that_breaks_a_condition_is_compared_too():
    """A pod may have one since its policy was edited, or another scheduler placed it."""
    tables = build_tables(load_recording("dgx-1-v100"))
    policy = PlacementPolicy(affinity=Affinity.NVLINK, strength=Strength.REQUIRED)
    found = find_runner_up(tables, available=0xFF, size=2, policy=policy, chosen=mask_of((0, 5)))
    assert found is not None
    assert (found.decided_by, found.is_better) == (Criterion.AFFINITY, True)
    alone = find_runner_up(tables, available=0b100001, size=2, policy=policy, chosen=0b100001)
    assert alone is None
