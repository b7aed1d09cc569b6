"""Subsets of a node's GPUs as bit masks, all of them at once.

What it answers: for n GPUs (n <= `MAX_TABLE_GPUS`), the size, lowest member and masks by size of
every subset, as numpy arrays indexed by mask. Bit i is GPU i. It knows nothing of links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["mask_index", "pair_sums"]


@dataclass(frozen=True, slots=True, eq=False)
class MaskIndex:
    """Facts of every mask of n GPUs.

    - `masks`: int64[2**n], 0, 1, 2 ...
    - `size`: int16[2**n], number of members.
    - `by_size[k]`: int64[C(n, k)], the masks of k members, in order of preference of their ids: the
      set whose sorted ids come first stands first.
    """

    n: int
    masks: NDArray[np.int64]
    size: NDArray[np.int16]
    by_size: tuple[NDArray[np.int64], ...]


@cache
def mask_index(n: int) -> MaskIndex:
    """Index the masks of n GPUs, 1 <= n <= 16. O(2**n), made once for each n.

    >>> from topology.model import gpus_of
    >>> [gpus_of(int(m)) for m in mask_index(3).by_size[2]]
    [(0, 1), (0, 2), (1, 2)]
    """
    masks = np.arange(1 << n, dtype=np.int64)
    bits = (masks[:, None] >> np.arange(n)) & 1
    size = bits.sum(axis=1, dtype=np.int16)
    # Reading the bits from GPU 0 on as a binary number orders sets by their sorted ids, last first.
    reading = (bits << np.arange(n - 1, -1, -1)).sum(axis=1)
    order = np.argsort(-reading, kind="stable")
    by_size = tuple(order[size[order] == k] for k in range(n + 1))
    for array in (masks, size, *by_size):
        array.setflags(write=False)
    return MaskIndex(n, masks, size, by_size)


def pair_sums(pairs: Sequence[Sequence[float]] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over the pairs inside every mask of an n x n matrix, float64[2**n].

    Only `pairs[i][j]` with j < i is read. Rounded to 1e-6, so that the order of addition does not
    show.

    >>> pair_sums([[0.0, 0.0], [2.5, 0.0]]).tolist()
    [0.0, 0.0, 0.0, 2.5]
    """
    table = np.zeros(1)
    for i, figures in enumerate(pairs):
        row = np.zeros(1)
        for figure in figures[:i]:
            row = np.concatenate([row, row + figure])
        table = np.concatenate([table, table + row])
    return np.round(table, 6)
