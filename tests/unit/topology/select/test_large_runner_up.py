"""The next set on machines of more than 16 GPUs: the best other one of those that are packed."""

from __future__ import annotations

from functools import cache

import pytest

from tests.machine_strategies import build_machine_by_hand
from topology.annotations import Affinity, NicRule, PlacementPolicy, Strength
from topology.model import PcieLevel, SwitchFabric
from topology.select import Criterion, LargeMachine, Selected, find_runner_up, select_set
from topology.select.large_machine import large_machine
from topology.value import mask_of


def _rings():
    """32 GPUs in four rings of eight, the third of them wide, joined by single links."""
    rings = {
        (8 * g + min(i, (i + 1) % 8), 8 * g + max(i, (i + 1) % 8)): 1 + 2 * (g == 2)
        for g in range(4)
        for i in range(8)
    }
    return build_machine_by_hand(
        32,
        links={**rings, **{(8 * g, 8 * g + 8): 1 for g in range(3)}},
        levels={PcieLevel.NODE: [range(16), range(16, 32)]},
        numa=[0] * 16 + [1] * 16,
        near_nic=range(24, 32),
    )


MACHINES = {
    "slices": lambda: build_machine_by_hand(56, parents=[f"GPU-{i // 7}" for i in range(56)]),
    "rack": lambda: build_machine_by_hand(
        72,
        fabrics=(SwitchFabric(ports=tuple((i, 18) for i in range(72))),),
        levels={PcieLevel.NODE: [range(4 * g, 4 * g + 4) for g in range(18)]},
        models=["NVIDIA GB200"] * 72,
        near_nic=(70, 71),
    ),
    "rings": _rings,
}


@cache
def _machine(name: str) -> LargeMachine:
    return large_machine(MACHINES[name]())


POLICIES = {
    "any": PlacementPolicy(),
    "wishes": PlacementPolicy(affinity=Affinity.NVLINK, nic=NicRule.PREFERRED),
    "numa": PlacementPolicy(affinity=Affinity.NUMA, strength=Strength.REQUIRED),
    "nic": PlacementPolicy(nic=NicRule.REQUIRED),
    "none": PlacementPolicy(affinity=Affinity.NONE),
    "bandwidth": PlacementPolicy(min_bandwidth_gbytes_per_s=5.0),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("size", [1, 2, 4, 9])
def test_a_runner_up_is_another_set_that_fits_and_is_no_better(name, policy, size):
    """It lies inside what is free, holds what it must, and meets the conditions."""
    machine = _machine(name)
    free = machine.all_gpus & ~0b100100
    question = {"available": free, "must_include": 0b1 << 25, "size": size, "policy": policy}
    best = select_set(machine, **question)
    found = find_runner_up(machine, **question)
    if not isinstance(best, Selected):
        assert found is None
        return
    if found is None:
        # The GPU that must be in, or the tray of four with it, is the only set.
        assert size == 1 or (name, size, policy.strength) == ("rack", 4, Strength.REQUIRED)
        return
    mask = mask_of(found.gpus)
    assert (mask & ~free, mask.bit_count(), mask >> 25 & 1) == (0, size, 1)
    assert mask != best.mask
    alone = select_set(machine, available=mask, must_include=mask, size=size, policy=policy)
    assert isinstance(alone, Selected)
    assert alone.value_gbytes_per_s == found.value_gbytes_per_s
    wishes = (best.satisfies_affinity, best.has_near_nic or policy.nic is NicRule.UNSET)
    others = (alone.satisfies_affinity, alone.has_near_nic or policy.nic is NicRule.UNSET)
    assert (*wishes, best.value_gbytes_per_s) >= (*others, alone.value_gbytes_per_s)


@pytest.mark.parametrize(
    ("name", "free", "size", "policy", "expected", "criterion"),
    [
        pytest.param("slices", range(56), 3, "any", (0, 1, 3), "packing", id="a slice beside"),
        pytest.param("rack", range(72), 4, "any", (4, 5, 6, 7), "packing", id="another tray"),
        pytest.param("rack", (0, 70), 1, "wishes", (0,), "nic", id="without a NIC"),
        pytest.param("rings", (0, 1, 9), 2, "wishes", (0, 9), "affinity", id="unlinked"),
        pytest.param("rings", (0, 1, 16, 17), 2, "any", (0, 1), "value", id="a narrow ring"),
    ],
)
def test_the_first_difference_decides(name, free, size, policy, expected, criterion):
    """Wishes, then the value, then which groups are filled."""
    machine = _machine(name)
    found = find_runner_up(machine, available=mask_of(free), size=size, policy=POLICIES[policy])
    assert found is not None
    assert (found.gpus, found.decided_by) == (expected, Criterion(criterion))
    assert (found.figures is not None) is (criterion == "value")


@pytest.mark.parametrize(
    ("name", "n_free"), [("slices", 4), ("rings", 4), ("rings", 3)], ids=["even", "uneven", "unfit"]
)
def test_a_single_set_has_no_runner_up(name, n_free):
    """All free GPUs, or fewer than requested."""
    assert find_runner_up(_machine(name), available=(1 << n_free) - 1, size=4) is None


def test_only_the_best_set_has_a_next_one_here():
    """The search compares sets with the best one, and with no other."""
    machine = _machine("slices")
    best = select_set(machine, available=machine.all_gpus, size=2)
    assert isinstance(best, Selected)
    free = machine.all_gpus
    found = find_runner_up(machine, available=free, size=2, chosen=best.mask)
    assert found == find_runner_up(machine, available=free, size=2)
    other = 1 << 3 | 1 << 40
    assert find_runner_up(machine, available=free, size=2, chosen=other) is None
