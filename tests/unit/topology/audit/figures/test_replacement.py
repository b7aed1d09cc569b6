"""The best re-placement: a brute force over all disjoint sets has no more."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import up_to
from topology.audit.figures import best_replacement
from topology.model import mask_of
from topology.value import gpus_of

N = 7


def brute_force(value, pool, sizes):
    """The most total value of disjoint sets, by trying all; -inf where there is none."""
    if not sizes:
        return 0.0
    return max(
        (
            value[mask_of(gpus)] + brute_force(value, pool & ~mask_of(gpus), sizes[1:])
            for gpus in combinations(gpus_of(pool), sizes[0])
        ),
        default=-np.inf,
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    pool=st.integers(0, 2**N - 1),
    sizes=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    n_forbidden=st.integers(0, 60),
)
@settings(max_examples=up_to(100))
def test_no_other_placement_has_more(seed, pool, sizes, n_forbidden):
    """Sets are disjoint, inside the pool, of the sizes and of the most total value."""
    random = np.random.default_rng(seed)
    value = random.integers(0, 9, 1 << N).astype(float)
    value[random.choice(1 << N, n_forbidden, replace=False)] = -np.inf
    found = best_replacement(value, N, pool, tuple(sizes))
    most = brute_force(value, pool, sizes)
    assert bool(found) == np.isfinite(most)
    if found:
        assert [mask.bit_count() for mask in found] == sizes
        assert sum(found) & ~pool == 0
        assert np.bitwise_or.reduce(found) == sum(found)
        assert sum(value[mask] for mask in found) == most


@pytest.mark.parametrize("sizes", [(8, 8), (4, 4, 4, 4), (2,) * 8, (6, 5, 3, 2)])
def test_sixteen_gpus(sizes):
    """The tables of the largest machines that are tabled: links of two join neighbours."""
    value = np.array([mask.bit_count() - (mask ^ mask >> 1).bit_count() for mask in range(1 << 16)])
    found = best_replacement(value.astype(float), 16, 0xFFFF, sizes)
    # Sets of neighbours have no more than two ends each.
    assert sum(int(value[mask]) for mask in found) >= sum(size - 2 for size in sizes)
