"""The best re-placement of all sets of a node: disjoint sets of given sizes, most total value.

What it answers: where the pods of a node would have the most GB/s in total if all of them could be
moved at once. It knows no pod, and nothing of what moving costs.

Method: exact, by tables over the subsets of the pool: the most total value of the first j sets
inside each subset comes from those of the first j - 1. The first table is a maximum over subsets,
the last one is needed for the whole pool only. For a pool of p GPUs and a set of k of the others
that is C(p, k) 2^(p-k) additions: 7,000 at 8 GPUs, 10^7 at 16.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from topology.value import gpus_of, mask_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["best_replacement"]


def best_replacement(
    value: NDArray[np.float64], n: int, pool: int, sizes: tuple[int, ...]
) -> tuple[int, ...]:
    """Disjoint sets inside `pool` of the given sizes, in their order; () where there are none.

    `value` is float64[2**n], GB/s, -inf for a set that may not be given; n is at most 16. Of equal
    totals the last set has the lowest ids, and so on.

    >>> value = np.array([0, 0, 0, 5, 0, 7, 1, 0], dtype=float)
    >>> best_replacement(value, 3, 0b111, (2,))
    (5,)
    """
    tables: list[NDArray[np.float64]] = [np.zeros(1 << n)]
    for size in sizes[:-1]:
        tables.append(_next_table(tables[-1], value, n, pool, size, is_first=len(tables) == 1))
    found: list[int] = []
    left = pool
    for table, size in zip(reversed(tables), reversed(sizes), strict=True):
        sets = _inside(n, left, size)
        totals = value[sets] + table[left ^ sets]
        if not len(sets) or not np.isfinite(totals.max()):
            return ()
        best = int(sets[totals.argmax()])
        found.append(best)
        left ^= best
    return tuple(reversed(found))


def _inside(n: int, pool: int, size: int) -> NDArray[np.int64]:
    """The sets of a size inside a pool, lowest ids first."""
    sets = mask_index(n).by_size[size]
    inside: NDArray[np.int64] = sets[sets & ~pool == 0]
    return inside


def _next_table(  # noqa: PLR0913 - one step of a table
    before: NDArray[np.float64],
    value: NDArray[np.float64],
    n: int,
    pool: int,
    size: int,
    *,
    is_first: bool,
) -> NDArray[np.float64]:
    """The most total value with a set of `size` more inside each subset of the pool."""
    sets = _inside(n, pool, size)
    sets = sets[np.isfinite(value[sets])]
    table = np.full(1 << n, -np.inf)
    if is_first:
        table[sets] = value[sets]
        for i in range(n):
            halves = table.reshape(-1, 2, 1 << i)
            np.maximum(halves[:, 1], halves[:, 0], out=halves[:, 1])
        return table
    for one in sets.tolist():
        rest = _subsets(pool & ~one)
        whole = rest | one
        table[whole] = np.maximum(table[whole], value[one] + before[rest])
    return table


@lru_cache(maxsize=1 << 12)
def _subsets(mask: int) -> NDArray[np.int64]:
    subsets = np.zeros(1, dtype=np.int64)
    for gpu in gpus_of(mask):
        subsets = np.concatenate([subsets, subsets | 1 << gpu])
    return subsets
