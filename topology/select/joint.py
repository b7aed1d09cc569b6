"""Disjoint sets for several containers of one pod, chosen together.

What it answers: for containers that hold their GPUs side by side, the sets that make the worst
container's shortfall as small as can be, then the union's remainder as large, then the single sets
in the order of `topology.select.selection`. It knows no init container (`topology.select.fit`).

Method. Exact, over the masks of a machine of up to 16 GPUs: reachable unions, container by
container, under the least bound on the worst shortfall, O(n 2**n) for each container and bound.
The tables depend on the machine type alone, and are kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from topology.annotations import NicRule, PlacementPolicy, is_remainder_first
from topology.select.levels import affinity_level
from topology.select.outcome import Selected, SetRequest, Unfit, UnfitReason
from topology.select.qualifying import ordered_sets, why_none
from topology.select.selection import describe_set
from topology.value import mask_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.select.tables import MachineTables

__all__ = ["select_jointly"]


def select_jointly(
    tables: MachineTables,
    available: int,
    sizes: tuple[int, ...],
    *,
    policy: PlacementPolicy,
    beside: int,
) -> tuple[Selected, ...] | Unfit:
    """Choose disjoint sets of these sizes among what is `available`, or say why there are none.

    GPUs `beside` are free as well and not to be chosen: they count in what is left behind.
    """
    for size in dict.fromkeys(sizes):
        if not (ordered_sets(tables, size, policy).masks & ~available == 0).any():
            return why_none(tables, SetRequest(available, size, 0, policy))
    bounds = _bounds(tables, sizes, policy)
    low, high = 0, len(bounds) - 1
    while low < high:
        middle = (low + high) // 2
        if len(_free_unions(tables, available, sizes, policy, bounds[middle])):
            high = middle
        else:
            low = middle + 1
    unions = _free_unions(tables, available, sizes, policy, bounds[low])
    if not len(unions):
        detail = f"containers of {', '.join(map(str, sizes))} GPUs side by side"
        return Unfit(UnfitReason.CONTAINERS_TAKEN, detail)
    free = available | beside
    left = tables.remainder[free & ~unions]
    unions = unions[left == left.max()]
    union = int(unions[tables.tie[unions].argmin()])
    parts = _split(tables, sizes, policy, bounds[low], union)
    return tuple(describe_set(tables, part, available=free, policy=policy) for part in parts)


@lru_cache(maxsize=1 << 10)
def _bounds(
    tables: MachineTables, sizes: tuple[int, ...], policy: PlacementPolicy
) -> tuple[float, ...]:
    """Every shortfall that a set of one of these sizes may have, ascending."""
    short = [_rated_sets(tables, size, policy)[1] for size in dict.fromkeys(sizes)]
    return tuple(np.unique(np.concatenate(short)).tolist())


@lru_cache(maxsize=1 << 10)
def _rated_sets(
    tables: MachineTables, size: int, policy: PlacementPolicy
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The sets of a size that meet the policy's conditions on the empty machine, and shortfalls."""
    sets = ordered_sets(tables, size, policy).masks
    return sets, _shortfall(tables, sets, size, policy)


def _free_unions(
    tables: MachineTables,
    available: int,
    sizes: tuple[int, ...],
    policy: PlacementPolicy,
    bound: float,
) -> NDArray[np.int64]:
    unions = _unions(tables, sizes, policy, bound)
    free: NDArray[np.int64] = unions[unions & ~available == 0]
    return free


def _shortfall(
    tables: MachineTables, sets: NDArray[np.int64], size: int, policy: PlacementPolicy
) -> NDArray[np.float64]:
    """How far each set falls short: 0 the best class .. 1, plus 2 without the wished NIC.

    Plus 4 where the affinity is missed. Where what is left behind counts first, only the NIC does.
    """
    short = np.zeros(len(sets))
    if policy.nic is NicRule.PREFERRED:
        short += np.where(tables.has_nic[sets], 0.0, 2.0)
    if is_remainder_first(policy, size):
        return short
    every = mask_index(tables.n_gpus).by_size[size]
    tops = np.zeros(int(tables.value_class[every].max()) + 1)
    np.maximum.at(tops, tables.value_class[every], tables.value[every])
    best = max(tables.best_value[size], 1e-9)
    short += np.maximum(0.0, 1 - tops[tables.value_class[sets]] / best)
    level = affinity_level(tables, policy.affinity)
    if level is not None:
        short += np.where(level[sets], 0.0, 4.0)
    return np.round(short, 9)


@lru_cache(maxsize=1 << 10)
def _unions(
    tables: MachineTables, sizes: tuple[int, ...], policy: PlacementPolicy, bound: float
) -> NDArray[np.int64]:
    """Every union of disjoint sets, one of each size, none with a larger shortfall; ascending.

    What is free does not enter: a union can be divided or not, whoever holds the other GPUs. So
    nodes of one machine type share the table, whatever is taken on them.

    The unions of all containers but the first are those of a pod without it, which is needed
    when a union is divided: each is made once. Pairs of sets are counted by their union, all unions
    at once (zeta and Moebius transform over subsets); a union as large as its parts together is one
    of disjoint parts.
    """
    n = tables.n_gpus
    if not sizes:
        return np.zeros(1, dtype=np.int64)
    sets, short = _rated_sets(tables, sizes[0], policy)
    own, rests = np.zeros((2, 1 << n), dtype=np.int64)
    own[sets[short <= bound]] = 1
    rests[_unions(tables, sizes[1:], policy, bound)] = 1
    pairs = _sum_over_subsets(own, n, 1) * _sum_over_subsets(rests, n, 1)
    unions = _sum_over_subsets(pairs, n, -1)
    return np.flatnonzero((unions > 0) & (mask_index(n).size == sum(sizes)))


def _sum_over_subsets(table: NDArray[np.int64], n: int, sign: int) -> NDArray[np.int64]:
    """For each mask the sum over its subsets; with `sign` -1 the inverse."""
    summed = table.copy()
    for i in range(n):
        halves = summed.reshape(-1, 2, 1 << i)
        halves[:, 1] += sign * halves[:, 0]
    return summed


def _split(
    tables: MachineTables,
    sizes: tuple[int, ...],
    policy: PlacementPolicy,
    bound: float,
    union: int,
) -> tuple[int, ...]:
    """Divide a union that can be divided; the first container gets the best part it can."""
    if not sizes:
        return ()
    sets, short = _rated_sets(tables, sizes[0], policy)
    options = sets[(short <= bound) & (sets & ~union == 0)]
    rests = _unions(tables, sizes[1:], policy, bound)
    options = options[np.isin(union & ~options, rests, assume_unique=True)]
    first = int(options[np.lexsort((tables.tie[options], tables.order[options]))[0]])
    return (first, *_split(tables, sizes[1:], policy, bound, union & ~first))
