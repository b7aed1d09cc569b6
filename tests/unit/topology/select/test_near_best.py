"""How many near-best sets are left: as the definition says, by every way of taking them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from tests.machine_strategies import built_machines
from tests.machines import machine
from topology.errors import InvalidRequest
from topology.model import Gpu
from topology.recordings import load_recording
from topology.select import build_tables, near_best_counts
from topology.value import mask_of

if TYPE_CHECKING:
    from topology.model import NodeTopology
    from topology.select import MachineTables


def most_disjoint(tables: MachineTables, free: frozenset[int], size: int) -> int:
    """The most near-best sets that can be taken, by trying every order."""

    @cache
    def most(left: frozenset[int]) -> int:
        good = (
            gpus
            for gpus in combinations(sorted(left), size)
            if tables.is_uniform[mask_of(gpus)]
            and tables.value[mask_of(gpus)] >= 0.9 * tables.best_value[size]
        )
        return max((1 + most(left - set(gpus)) for gpus in good), default=0)

    return most(free)


@given(topology=built_machines(min_gpus=1, max_gpus=7), size=st.integers(1, 7), mask=st.integers(0))
@settings(max_examples=up_to(40))
def test_the_count_is_the_most_that_can_be_taken(
    topology: NodeTopology, size: int, mask: int
) -> None:
    """A count too high promises room that no pod finds, one too low hides it."""
    tables, size = build_tables(topology), min(size, topology.n_gpus)
    free = frozenset(i for i in range(topology.n_gpus) if mask >> i & 1)
    counts = near_best_counts(tables, size)
    assert counts[mask_of(free)] == most_disjoint(tables, free, size)


@pytest.mark.parametrize(
    ("recording", "size", "free", "expected"),
    [
        pytest.param("8x-a6000-bridged", 2, range(8), 4, id="each bridge is a pair"),
        pytest.param("8x-a6000-bridged", 2, (0, 2, 4, 6), 0, id="four GPUs and no bridge"),
        pytest.param("dgx-h100", 4, (0, 2, 3, 5, 7), 1, id="any four on a switch"),
        pytest.param("dgx-2", 8, range(16), 2, id="two halves of 16"),
    ],
)
def test_sets_that_machines_hold(recording, size, free, expected):
    """On machines whose best sets are known."""
    tables = build_tables(load_recording(recording))
    assert near_best_counts(tables, size)[mask_of(free)] == expected


def test_a_set_exactly_at_the_bound_is_near_best():
    """The definition says "at most"."""
    tables = build_tables(load_recording("4x-l40s"))
    value = tables.value.copy()
    value[0b0011], value[0b1100] = 100.0, 90.0
    best_value = tuple(100.0 if size == 2 else one for size, one in enumerate(tables.best_value))
    bounded = replace(tables, value=value, best_value=best_value)
    assert near_best_counts(bounded, 2)[0b1111] == 2


def test_models_are_not_mixed():
    """No pod gets two models without asking for it, so such a set is no room."""
    mixed = build_tables(machine([Gpu(model="A"), Gpu(model="A"), Gpu(model="B")]))
    assert near_best_counts(mixed, 2)[0b111] == 1
    assert not near_best_counts(mixed, 3).any()


def test_other_sizes_are_refused():
    """There is no set of no GPU, and none of more than there are."""
    tables = build_tables(load_recording("4x-l40s"))
    for size in (0, 5):
        with pytest.raises(InvalidRequest, match=rf"size is {size}, expected 1\.\.4"):
            near_best_counts(tables, size)
