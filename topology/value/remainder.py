"""What is left behind: how much the GPUs that stay free are still worth to future pods.

What it answers: for every set F of free GPUs, R(F), the share of the empty machine's worth that F
still holds. Taking S from F costs R(F) - R(F - S). It never chooses a set.

Method. For each demand size d the best total value of *disjoint* d-sets inside F, P_d(F), found by
dynamic programming over F's lowest GPU: it stays out, or it is in one of the d-sets.

    R(F) = sum over d of weight_d * P_d(F) / P_d(all), weights normed to 1 over the sizes <= n

A single GPU counts 1. Disjoint sets, not the best next one: "best next set of each size" puts 77 %
of two-GPU pods on NVLink bridges of an 8x A6000 machine where disjoint pairs put all of them.
Source of the idea: MAPA's preserved bandwidth (Ranganath et al., SC'21) and go-gpuallocator's
partitions; the disjoint form over several sizes is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from topology.errors import InvalidRequest
from topology.model import mask_of
from topology.value.masks import mask_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DEFAULT_DEMAND", "Demand", "disjoint_values", "remainder_table"]


@dataclass(frozen=True, slots=True)
class Demand:
    """Which set sizes are to come, and how often: pairs (size, weight), ascending by size.

    Sizes 1..512, weights above 0; only their ratio counts.
    """

    sizes: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        names = [size for size, _ in self.sizes]
        if not names or names != sorted(set(names)) or names[0] < 1 or names[-1] > 512:  # noqa: PLR2004 - MAX_GPUS
            msg = f"demand sizes are {names}, expected different sizes 1..512, ascending"
            raise InvalidRequest(msg)
        for size, weight in self.sizes:
            if not 0 < weight < float("inf"):
                msg = f"demand weight of size {size} is {weight}, expected a finite number above 0"
                raise InvalidRequest(msg)


DEFAULT_DEMAND = Demand(((1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (8, 1.0)))
"""Sizes 1, 2, 3, 4 and 8 alike. 3 belongs: without it the harmonic mean of the replayed MAPA queues
was 43.0 GB/s instead of 44.4 (five tie orders, when the default was chosen)."""

_DECIMALS = 9
"""R is rounded to 1e-9: equal remainders compare equal whatever order they were summed in."""


def remainder_table(
    value: NDArray[np.float64], n: int, demand: Demand = DEFAULT_DEMAND
) -> NDArray[np.float64]:
    """R of every mask, float64[2**n] in 0..1: 0 for the empty mask, 1 for the whole machine.

    `value` is float64[2**n], GB/s, of every mask of n <= 16 GPUs. O(C(n, d) 2**(n-d)) for each
    demand size d <= n / 2. Where no demand size fits the machine, R counts free GPUs.
    """
    size = mask_index(n).size
    total = np.zeros(1 << n)
    weights = 0.0
    heaviest = max(weight for _, weight in demand.sizes)
    for d, weight in demand.sizes:
        if d > n:
            continue
        sums = disjoint_values(value, n, d)
        if sums[-1] > 0:
            # Weights are taken relative to the heaviest: any finite ones add up to a number.
            total += weight / heaviest * (sums / sums[-1])
            weights += weight / heaviest
    share = total / weights if weights else size / n
    return np.round(share, _DECIMALS)


def disjoint_values(value: NDArray[np.float64], n: int, d: int) -> NDArray[np.float64]:
    """P_d of every mask: the best total value of disjoint d-sets inside it, float64[2**n].

    >>> value = np.array([0, 0, 0, 5, 0, 7, 1, 0], dtype=float)
    >>> disjoint_values(value, 3, 2).tolist()
    [0.0, 0.0, 0.0, 5.0, 0.0, 7.0, 1.0, 7.0]
    """
    index = mask_index(n)
    if d == 1:
        return index.size.astype(np.float64)
    best = np.where(index.size == d, value, 0.0)
    for i in range(n):
        halves = best.reshape(-1, 2, 1 << i)
        np.maximum(halves[:, 1], halves[:, 0], out=halves[:, 1])
    if 2 * d > n:
        return best
    for low in range(n - 1, -1, -1):
        _extend(best, value, n=n, d=d, low=low)
    return best


def _extend(
    best: NDArray[np.float64], value: NDArray[np.float64], *, n: int, d: int, low: int
) -> None:
    """Let the masks whose lowest member is `low` hold several disjoint sets, one with it."""
    above = n - low - 1
    if above + 1 < 2 * d:
        return
    shift = low + 1
    # The index of fewer GPUs is the beginning of the index of n.
    index, n_upper = mask_index(n), 1 << above
    wide = index.masks[:n_upper][index.size[:n_upper] + 1 >= 2 * d]
    base = (wide << shift) | (1 << low)
    found = np.maximum(best[base], best[wide << shift])
    for others in combinations(range(above), d - 1):
        rest = mask_of(others)
        holds = np.flatnonzero(wide & rest == rest)
        left = (wide[holds] ^ rest) << shift
        total = value[rest << shift | 1 << low] + best[left]
        found[holds] = np.maximum(found[holds], total)
    best[base] = found
