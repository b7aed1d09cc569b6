"""Subsets as bit masks: every fact of every mask against plain Python."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.value import MAX_TABLE_GPUS, gpus_of, mask_index, mask_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.mark.parametrize("n", [1, 2, 5, 10, MAX_TABLE_GPUS])
def test_sets_of_one_size_stand_in_order_of_their_sorted_ids(n):
    """The last tie-break reads "lowest ids first" off this order."""
    for k, masks in enumerate(mask_index(n).by_size):
        assert [gpus_of(mask) for mask in masks.tolist()] == list(combinations(range(n), k))


@pytest.mark.parametrize("n", [1, 3, 8])
def test_size_of_every_mask(n):
    """Tables index these arrays by mask."""
    index = mask_index(n)
    assert index.n == n
    assert index.masks.tolist() == list(range(1 << n))
    assert index.size.tolist() == [mask.bit_count() for mask in range(1 << n)]


def test_an_index_is_made_once_and_never_written():
    """Tables of all machines share it."""
    index = mask_index(4)
    assert index is mask_index(4)
    arrays: tuple[NDArray[Any], ...] = (index.masks, index.size, *index.by_size)
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@given(st.sets(st.integers(0, 80)))
def test_masks_and_members_turn_into_each_other(gpus):
    """Masks of any width stand for sets, whatever the order they are given in."""
    assert gpus_of(mask_of(gpus)) == tuple(sorted(gpus))
    assert mask_of(sorted(gpus, reverse=True)) == mask_of([*gpus, *gpus])
