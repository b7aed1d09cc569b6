"""Stranded GPUs: free ones that near-best sets of a size cannot use.

Counts the GPUs of one machine's free set that are left over, however disjoint sets of a size are
cut out of it, where every set must be within 10 % of the machine's best of that size. It knows no
fleet and no pod.

Method: the most disjoint near-best sets inside a free set, by dynamic programming over free sets:
the lowest free GPU is left over or lies in one of the near-best sets. O(2**n) free sets of C(n,
size) sets each at worst; every answer is kept, by machine and free set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.masks import subsets_of_size

if TYPE_CHECKING:
    from topology.select import MachineTables

__all__ = ["Stranding"]

NEAR_BEST_LOSS = 0.10


class Stranding:
    """Counts stranded GPUs; keeps what it found, keyed by the identity of a machine's tables."""

    def __init__(self) -> None:
        self._near: dict[tuple[MachineTables, int], tuple[int, ...]] = {}
        self._packed: dict[tuple[MachineTables, int, int], int] = {}

    def count(self, tables: MachineTables, free: int, size: int) -> int:
        """Stranded GPUs of a free set; none on a machine with fewer than `size` GPUs."""
        if tables.topology.n_gpus < size:
            return 0
        return free.bit_count() - size * self._pack(tables, free, size)

    def _pack(self, tables: MachineTables, free: int, size: int) -> int:
        """Most disjoint near-best sets inside `free`."""
        if free.bit_count() < size:
            return 0
        key = (tables, free, size)
        if key not in self._packed:
            lowest = free & -free
            best = self._pack(tables, free & ~lowest, size)
            for mask in self._near_best(tables, size):
                if mask & lowest and mask & ~free == 0:
                    best = max(best, 1 + self._pack(tables, free & ~mask, size))
            self._packed[key] = best
        return self._packed[key]

    def _near_best(self, tables: MachineTables, size: int) -> tuple[int, ...]:
        key = (tables, size)
        if key not in self._near:
            least = (1 - NEAR_BEST_LOSS) * tables.best_value[size]
            everything = (1 << tables.topology.n_gpus) - 1
            self._near[key] = tuple(
                mask for mask in subsets_of_size(everything, size) if tables.value[mask] >= least
            )
        return self._near[key]
