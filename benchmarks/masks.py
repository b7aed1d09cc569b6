"""Sets of GPUs of a size, as bit masks: bit i stands for GPU i of the node.

Results are cached, since the benchmarks use the same few hundred free sets repeatedly.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

from topology.model import gpus_of, mask_of

__all__ = ["subsets_of_size"]


@lru_cache(maxsize=1 << 12)
def subsets_of_size(free: int, size: int) -> tuple[int, ...]:
    """Return every set of `size` GPUs inside `free`, in lexicographic order of GPU indices.

    >>> subsets_of_size(0b111, 2)
    (3, 5, 6)
    """
    return tuple(mask_of(gpus) for gpus in combinations(gpus_of(free), size))
