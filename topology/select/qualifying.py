"""The sets that meet a pod's conditions, in order; and which condition none of the free ones meets.

What it answers: for one machine type, size and policy the sets that qualify, sorted once by all but
what they leave behind (`ordered_sets`); of those the ones that a request may get, best first
(`free_sets`); and where there is none, why not (`why_none`). Whether a set qualifies never depends
on what is free. The order is explained in `topology.select.selection`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from topology.annotations import Affinity, NicRule, Strength, is_remainder_first
from topology.select.levels import affinity_level, possible_level
from topology.select.outcome import Unfit, UnfitReason
from topology.value import gpus_maybe_near_rdma, has_dark_links, mask_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from topology.annotations import PlacementPolicy
    from topology.select.outcome import SetRequest
    from topology.select.tables import MachineTables

__all__ = ["OrderedSets", "free_sets", "ordered_sets", "why_none"]


@dataclass(frozen=True, slots=True)
class OrderedSets:
    """The sets of one size that qualify, as masks, int64; the best first.

    `groups`, int64 and ascending: between sets of one group what they leave behind decides first,
    then their place.
    """

    masks: NDArray[np.int64]
    groups: NDArray[np.int64]


@lru_cache(maxsize=256)
def ordered_sets(tables: MachineTables, size: int, policy: PlacementPolicy) -> OrderedSets:
    """The sets of `size` GPUs, 1..n, that meet every condition of a policy.

    Remembered for some machine types and policies: one order of 16 GPUs takes up to 0.2 MB.
    """
    # Every pod may state a bound of its own, which changes which sets qualify and not their order.
    floor = policy.min_bandwidth_gbytes_per_s
    every = _ordered(
        tables,
        size,
        replace(policy, min_bandwidth_gbytes_per_s=None),
        is_remainder_first(policy, size),
    )
    if floor is None or size == 1:
        return every
    reaches = _reaches(tables, every.masks, floor)
    return OrderedSets(every.masks[reaches], every.groups[reaches])


@lru_cache(maxsize=256)
def _ordered(
    tables: MachineTables,
    size: int,
    policy: PlacementPolicy,
    remainder_first: bool,
) -> OrderedSets:
    masks = mask_index(tables.n_gpus).by_size[size]
    for condition in _conditions(tables, size, policy):
        masks = masks[condition.holds(masks)]
    wishes = np.zeros(len(masks), dtype=np.int64)
    level = affinity_level(tables, policy.affinity)
    if level is not None:
        wishes += np.where(level[masks], 0, 2)
    if policy.nic is NicRule.PREFERRED:
        wishes += np.where(tables.has_nic[masks], 0, 1)
    order = tables.order[masks]
    at = np.lexsort((tables.tie[masks], order, wishes))
    masks, wishes, order = masks[at], wishes[at], order[at]
    begins = np.diff(wishes, prepend=0) != 0
    if not remainder_first:
        begins |= np.diff(order, prepend=0) != 0
    return OrderedSets(masks, np.cumsum(begins))


def free_sets(tables: MachineTables, request: SetRequest) -> Iterator[int]:
    """The sets that a request may get, best first.

    In a group what is left behind decides, then the place. The first costs one scan of all sets.
    """
    ordered = ordered_sets(tables, request.size, request.policy)
    fits = _fits(ordered.masks, request)
    masks, groups = ordered.masks[fits], ordered.groups[fits]
    begin = 0
    while begin < len(masks):
        end = int(np.searchsorted(groups, int(groups[begin]), side="right"))
        group = masks[begin:end]
        left = tables.remainder[(request.available | request.beside) & ~group]
        # Mostly one set is asked for: the group is sorted when a second one is.
        yield int(group[left == left.max()][0])
        yield from group[(-left).argsort(kind="stable")][1:].tolist()
        begin = end


def _fits(masks: NDArray[np.int64], request: SetRequest) -> NDArray[np.bool_]:
    must = request.must_include
    fits: NDArray[np.bool_] = (masks & ~request.available == 0) & (masks & must == must)
    return fits


def why_none(tables: MachineTables, request: SetRequest) -> Unfit:
    """The first condition that no free set with `must_include` meets, where none meets all."""
    every = mask_index(tables.n_gpus).by_size[request.size]
    free = every[_fits(every, request)]
    conditions = _conditions(tables, request.size, request.policy)
    while True:
        one = next(conditions)
        free = free[one.holds(free)]
        if not len(free):
            break
        every = every[one.holds(every)]
    if one.holds(every).any():
        return Unfit(one.taken, one.detail)
    return Unfit(one.unknown if one.might_hold(every) else one.never, one.detail)


@dataclass(frozen=True, slots=True)
class _Condition:
    """Which sets meet it, and the reasons where none does: of all sets, or of those that are free.

    `holds` is for each of some masks. `might_hold`, of sets that meet the conditions before:
    whether it would if all unknowns were favourable. `unknown` is the reason then.
    """

    holds: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
    never: UnfitReason
    taken: UnfitReason
    unknown: UnfitReason
    might_hold: Callable[[NDArray[np.int64]], bool]
    detail: str


def _conditions(tables: MachineTables, size: int, policy: PlacementPolicy) -> Iterator[_Condition]:
    requested = f"{size} GPUs"
    if policy.affinity is not Affinity.NONE:
        yield _Condition(
            tables.is_uniform.__getitem__,
            never=UnfitReason.MIXED_MODELS,
            taken=UnfitReason.MIXED_MODELS,
            unknown=UnfitReason.MIXED_MODELS,
            might_hold=lambda _: False,
            detail=f"{requested} of one model",
        )
    required = policy.strength is Strength.REQUIRED
    level = affinity_level(tables, policy.affinity) if required else None
    if level is not None:
        yield _Condition(
            level.__getitem__,
            never=UnfitReason.AFFINITY_NEVER,
            taken=UnfitReason.AFFINITY_TAKEN,
            unknown=UnfitReason.AFFINITY_UNKNOWN,
            might_hold=lambda sets: bool(possible_level(tables, policy.affinity)[sets].any()),
            detail=f"{requested}, affinity {policy.affinity.value}",
        )
    if policy.nic is NicRule.REQUIRED:
        yield _Condition(
            tables.has_nic.__getitem__,
            never=UnfitReason.NIC_NEVER,
            taken=UnfitReason.NIC_TAKEN,
            unknown=UnfitReason.NIC_UNKNOWN,
            might_hold=lambda sets: bool(np.any(sets & gpus_maybe_near_rdma(tables.topology))),
            detail=requested,
        )
    floor = policy.min_bandwidth_gbytes_per_s
    if floor is not None and size > 1:
        yield _Condition(
            lambda sets: _reaches(tables, sets, floor),
            never=UnfitReason.BANDWIDTH_NEVER,
            taken=UnfitReason.BANDWIDTH_TAKEN,
            unknown=UnfitReason.BANDWIDTH_UNKNOWN,
            might_hold=lambda sets: _might_reach(tables, sets, floor),
            detail=f"{requested}, at least {floor:g} GB/s after the stated error",
        )


def _reaches(tables: MachineTables, sets: NDArray[np.int64], floor: float) -> NDArray[np.bool_]:
    reaches: NDArray[np.bool_] = tables.is_known[sets] & (tables.floor_of(sets) >= floor)
    return reaches


def _might_reach(tables: MachineTables, sets: NDArray[np.int64], floor: float) -> bool:
    dark = sets[~tables.is_known[sets]]
    reaches = tables.floor_of(dark) >= floor
    return bool(reaches.any()) or (len(dark) > 0 and has_dark_links(tables.topology))
