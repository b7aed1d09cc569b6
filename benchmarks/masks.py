"""Sets of GPUs as bit masks: bit i stands for GPU i of the node.

Lists the sets of a size inside a free set, in order of their lowest ids. Results are cached, since
the benchmarks use the same few hundred free sets repeatedly.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["mask_of", "members", "subsets_of_size"]


def mask_of(gpus: Iterable[int]) -> int:
    """Return the mask of some GPU indices.

    >>> mask_of((0, 2))
    5
    """
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask


@lru_cache(maxsize=1 << 17)
def members(mask: int) -> tuple[int, ...]:
    """Return the GPU indices of a mask, ascending.

    >>> members(5)
    (0, 2)
    """
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


@lru_cache(maxsize=1 << 12)
def subsets_of_size(free: int, size: int) -> tuple[int, ...]:
    """Return every set of `size` GPUs inside `free`, in lexicographic order of GPU indices.

    >>> subsets_of_size(0b111, 2)
    (3, 5, 6)
    """
    return tuple(mask_of(gpus) for gpus in combinations(members(free), size))
