"""Which set comes next after the chosen one, and what decided between them.

What it answers: for one request, the set that would be chosen without the best one, and the first
key of the order (`topology.select.selection`) in which the two differ. It chooses nothing: the
order is that of `qualifying_sets`. Above 16 GPUs it is the best other set among those that the
packing made (`topology.select.large`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from operator import gt, ne
from typing import TYPE_CHECKING, Any, TypeAlias

from topology.annotations import DEFAULT_POLICY, NicRule, is_remainder_first
from topology.select.large_machine import LargeMachine, satisfies_level, value_of
from topology.select.levels import affinity_level
from topology.select.outcome import SetRequest
from topology.select.selection import describe_set, qualifying_sets, remainder_cost
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

    The inputs are those of `select_set`, which has checked them, and so is the work. With `chosen`,
    the mask of a set of this size that lies in `available`, it is the best other set than that one;
    None above 16 GPUs if that is not the best.

    >>> from topology.recordings import load_recording
    >>> from topology.select.tables import build_tables
    >>> tables = build_tables(load_recording("dgx-1-v100"))
    >>> found = find_runner_up(tables, available=0b11111111, size=2)
    >>> found.gpus, found.decided_by.value
    ((6, 7), 'indices')
    """
    request = SetRequest(available, size, must_include, policy)
    ranked = qualifying_sets(machine, request)
    first = next(ranked, None)
    own = first if chosen is None else chosen
    if first is None or own is None or (own != first and isinstance(machine, LargeMachine)):
        return None
    other = first if own != first else next(ranked, None)
    if other is None:
        return None
    decided_by, figures = _first_difference(machine, request, own, other)
    value = describe_set(machine, other, available=available, policy=policy).value_gbytes_per_s
    return RunnerUp(gpus_of(other), value, decided_by, figures, is_better=other == first)


def _first_difference(
    machine: Machine, request: SetRequest, own: int, other: int
) -> tuple[Criterion, tuple[float, float] | None]:
    """The first key of the order in which two sets differ, and its figures if it has some."""
    if isinstance(machine, LargeMachine):
        # Another packed set may be better in a value that was not what decided.
        keys, differs, last = _packed_keys(machine, request), gt, Criterion.PACKING
    else:
        keys, differs, last = _keys(machine, request), ne, Criterion.INDICES
    for criterion, key in keys:
        figures = key(own), key(other)
        if differs(*figures):
            return criterion, None if criterion in _WITHOUT_FIGURES else figures
    return last, None


_Keys: TypeAlias = "Iterator[tuple[Criterion, Callable[[int], float]]]"


def _packed_keys(machine: LargeMachine, request: SetRequest) -> _Keys:
    yield Criterion.AFFINITY, lambda mask: satisfies_level(machine, mask, request.policy.affinity)
    if request.policy.nic is NicRule.PREFERRED:
        yield Criterion.NIC, lambda mask: bool(mask & machine.near_rdma)
    yield Criterion.VALUE, lambda mask: value_of(machine, mask)[0]


def _keys(tables: MachineTables, request: SetRequest) -> _Keys:
    """The keys of the order, the most significant first, each as a figure of a mask."""
    level = affinity_level(tables, request.policy.affinity)
    if level is not None:
        yield Criterion.AFFINITY, _figure_of(level)
    if request.policy.nic is NicRule.PREFERRED:
        yield Criterion.NIC, _figure_of(tables.has_nic)
    remainder_first = is_remainder_first(request.policy, request.size)

    def cost(mask: int) -> float:
        return remainder_cost(tables, request.available, mask)

    if remainder_first:
        yield Criterion.REMAINDER, cost
    yield Criterion.VALUE_CLASS, _figure_of(tables.value_class)
    yield Criterion.CLASS_SUM, _figure_of(tables.class_sum)
    # All of the order but class and sum are equal here.
    yield Criterion.CLOSENESS, _figure_of(tables.order)
    if not remainder_first:
        yield Criterion.REMAINDER, cost
    yield Criterion.RAW_SUM, _figure_of(tables.raw_sum)
    yield Criterion.VALUE, _figure_of(tables.value)


def _figure_of(table: NDArray[Any]) -> Callable[[int], float]:
    return lambda mask: float(table[mask])
