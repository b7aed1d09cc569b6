"""Which set comes next after the chosen one, and what decided between them.

What it answers: for one request, the set that would be chosen without the best one, and the first
key of the order (`topology.select.selection`) in which the two differ. It chooses nothing: the
order is that of the machine's tables. Above 16 GPUs it is the best other set among those that the
packing made (`topology.select.large`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from topology.annotations import DEFAULT_POLICY, NicRule, is_remainder_first
from topology.select.large import next_large
from topology.select.large_machine import LargeMachine
from topology.select.levels import affinity_level
from topology.select.outcome import Selected, Unfit
from topology.select.qualifying import ordered_sets
from topology.select.selection import remainder_cost, select_set
from topology.value import gpus_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from topology.annotations import PlacementPolicy
    from topology.select.selection import Machine
    from topology.select.tables import MachineTables

__all__ = ["Criterion", "RunnerUp", "find_runner_up"]


class Criterion(Enum):
    """A key of the order of preference; `topology.select.selection` explains them."""

    AFFINITY = "affinity"
    NIC = "nic"
    VALUE_CLASS = "value_class"
    CLASS_SUM = "class_sum"
    CLOSENESS = "closeness"
    REMAINDER = "remainder"
    RAW_SUM = "raw_sum"
    VALUE = "value"
    PACKING = "packing"
    """Above 16 GPUs: which groups of devices are filled, since neither wish nor value decides."""
    INDICES = "indices"


_WITHOUT_FIGURES = {Criterion.AFFINITY, Criterion.NIC, Criterion.CLOSENESS}


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The next set; `figures` are those of the chosen set and of this one that differ first.

    Classes and GB/s; what is left behind as a cost in GPU-equivalents; None where `decided_by` has
    no figure. `is_better`: it comes before the set that it is compared with, which was given.
    """

    gpus: tuple[int, ...]
    value_gbytes_per_s: float
    decided_by: Criterion
    figures: tuple[float, float] | None
    is_better: bool = False


def find_runner_up(  # noqa: PLR0913 - as `select_set`, and the set to compare with
    machine: Machine,
    *,
    available: int,
    size: int,
    must_include: int = 0,
    policy: PlacementPolicy = DEFAULT_POLICY,
    chosen: int | None = None,
) -> RunnerUp | None:
    """Find the second set of the order, None where fewer than two sets fit or were compared.

    The inputs are those of `select_set`, which has checked them. O(C(n, size)) up to 16 GPUs, the
    work of `select_set` above. With `chosen`, the mask of a set of this size that lies in
    `available`, it is the best other set than that one; None above 16 GPUs if that is not the best.

    >>> from topology.recordings import load_recording
    >>> from topology.select.tables import build_tables
    >>> tables = build_tables(load_recording("dgx-1-v100"))
    >>> found = find_runner_up(tables, available=0b11111111, size=2)
    >>> found.gpus, found.decided_by.value
    ((6, 7), 'indices')
    """
    if isinstance(machine, LargeMachine):
        best = select_set(
            machine, available=available, size=size, must_include=must_include, policy=policy
        )
        if chosen is not None and not (isinstance(best, Selected) and best.mask == chosen):
            return None
        return _next_found(machine, best, available, must_include, policy)
    return _second(
        machine,
        available=available,
        size=size,
        must_include=must_include,
        policy=policy,
        chosen=chosen,
    )


def _next_found(
    machine: LargeMachine,
    best: Selected | Unfit,
    available: int,
    must_include: int,
    policy: PlacementPolicy,
) -> RunnerUp | None:
    if isinstance(best, Unfit):
        return None
    other = next_large(machine, best, available=available, must_include=must_include, policy=policy)
    if other is None:
        return None
    figures = None
    if best.satisfies_affinity and not other.satisfies_affinity:
        decided_by = Criterion.AFFINITY
    elif policy.nic is NicRule.PREFERRED and best.has_near_nic and not other.has_near_nic:
        decided_by = Criterion.NIC
    elif best.value_gbytes_per_s > other.value_gbytes_per_s:
        decided_by = Criterion.VALUE
        figures = (best.value_gbytes_per_s, other.value_gbytes_per_s)
    else:
        decided_by = Criterion.PACKING
    return RunnerUp(other.gpus, other.value_gbytes_per_s, decided_by, figures)


def _second(  # noqa: PLR0913 - as `find_runner_up`
    tables: MachineTables,
    *,
    available: int,
    size: int,
    must_include: int,
    policy: PlacementPolicy,
    chosen: int | None,
) -> RunnerUp | None:
    ordered = ordered_sets(tables, size, policy)
    masks, groups = ordered.masks, ordered.groups
    fits = (masks & ~available == 0) & (masks & must_include == must_include)
    masks, groups = masks[fits], groups[fits]
    left = tables.remainder[available & ~masks]
    # Stable: the place in the order decides last.
    ranked: list[int] = masks[np.lexsort((-left, groups))].tolist()
    best = chosen if chosen is not None else next(iter(ranked), 0)
    other = next((mask for mask in ranked if mask != best), None)
    if other is None:
        return None
    is_better = ranked[0] != best
    decided_by, shown = Criterion.INDICES, None
    for criterion, key in _keys(tables, available, size, policy):
        figures = (key(best), key(other))
        if figures[0] != figures[1]:
            decided_by = criterion
            shown = None if criterion in _WITHOUT_FIGURES else figures
            break
    return RunnerUp(gpus_of(other), float(tables.value[other]), decided_by, shown, is_better)


def _keys(
    tables: MachineTables, available: int, size: int, policy: PlacementPolicy
) -> Iterator[tuple[Criterion, Callable[[int], float]]]:
    """The keys of the order, the most significant first, each as a figure of a mask."""
    level = affinity_level(tables, policy.affinity)
    if level is not None:
        yield Criterion.AFFINITY, _figure_of(level)
    if policy.nic is NicRule.PREFERRED:
        yield Criterion.NIC, _figure_of(tables.has_nic)
    remainder_first = is_remainder_first(policy, size)

    def cost(mask: int) -> float:
        return remainder_cost(tables, available, mask)

    if remainder_first:
        yield Criterion.REMAINDER, cost
    yield Criterion.VALUE_CLASS, _figure_of(tables.value_class)
    yield Criterion.CLASS_SUM, _figure_of(tables.class_sum)
    yield (
        Criterion.CLOSENESS,
        _figure_of(tables.order),
    )  # all of it but class and sum are equal here
    if not remainder_first:
        yield Criterion.REMAINDER, cost
    yield Criterion.RAW_SUM, _figure_of(tables.raw_sum)
    yield Criterion.VALUE, _figure_of(tables.value)


def _figure_of(table: NDArray[Any]) -> Callable[[int], float]:
    return lambda mask: float(table[mask])
