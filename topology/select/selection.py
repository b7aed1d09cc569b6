"""Which set of GPUs a container gets, from the kubelet's own three inputs.

What it answers: of the free GPUs (`available`), holding `must_include`, the best set of `size`
under a pod's policy; or why there is none, as a value. Exact for every free set up to 16 GPUs: a
scan of all sets of that size. Deterministic, with a total tie-break. It changes nothing.

Order, first difference decides (all from the machine's tables):

- two or more GPUs: the affinity level holds, the NIC wish holds; value class; measured pair classes
  (by label: accelerator bandwidth, PCIe closeness); remainder; raw measured sum; value; lowest ids.
- affinity `none`, one GPU, or `min-bandwidth` without an affinity: the NIC wish holds; remainder;
  then as above.

`required`, a required NIC and `min-bandwidth` are conditions, not wishes; an unknown level or value
never satisfies one. GPUs of different models mix only under affinity `none`.

Complexity: O(C(n, size)) numpy word operations, 12,870 sets at most; memoised by all inputs. The
sets that qualify are put in order once (`topology.select.qualifying`); `qualifying_sets` goes
through those that are free, best first, of which the first is chosen and the next is its runner-up.
Many states of one machine type are looked at together (`select_sets`).
Nodes of more than 16 devices: `topology.select.large`, by the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from topology.annotations import DEFAULT_POLICY
from topology.errors import InvalidRequest, UnknownDevice
from topology.select.large import describe_packed, packed_sets, shared_cost, why_not_packed
from topology.select.large_machine import LargeMachine, large_machine
from topology.select.levels import affinity_level
from topology.select.outcome import Selected, SetRequest, Unfit, UnfitReason
from topology.select.qualifying import free_sets, ordered_sets, why_none
from topology.select.tables import MachineTables, build_tables
from topology.value import (
    DEFAULT_DEMAND,
    MAX_TABLE_GPUS,
    Limit,
    gpus_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from topology.annotations import PlacementPolicy
    from topology.model import NodeTopology
    from topology.value import Demand

__all__ = [
    "ChosenSets",
    "Machine",
    "build_machine",
    "check_request",
    "describe_set",
    "qualifying_sets",
    "remainder_cost",
    "select_set",
    "select_sets",
]

Machine = MachineTables | LargeMachine
"""A machine type: a table of every set up to 16 GPUs, packing above."""


def build_machine(topology: NodeTopology, demand: Demand = DEFAULT_DEMAND) -> Machine:
    """Prepare a machine type of any size, once for each digest."""
    if topology.n_gpus > MAX_TABLE_GPUS:
        return large_machine(topology, demand)
    return build_tables(topology, demand)


def check_request(*, n: int, available: int, must_include: int, size: int) -> None:
    """Refuse masks with unknown GPUs (`UnknownDevice`) and sizes below 1 (`InvalidRequest`)."""
    for label, mask in (("available", available), ("must_include", must_include)):
        if mask < 0 or mask >> n:
            msg = f"{label} is {mask:#x}, expected a mask of GPUs 0..{n - 1}"
            raise UnknownDevice(msg)
    if size < 1:
        msg = f"size is {size}, expected at least 1 GPU"
        raise InvalidRequest(msg)


def select_set(  # noqa: PLR0913 - the kubelet's three inputs, the pod's wish, and what lies around
    machine: Machine,
    *,
    available: int,
    size: int,
    must_include: int = 0,
    beside: int = 0,
    policy: PlacementPolicy = DEFAULT_POLICY,
) -> Selected | Unfit:
    """Choose the best set of `size` free GPUs that holds `must_include`, as `SetRequest` says.

    Raises `UnknownDevice` for GPUs that the node has not,
    `InvalidRequest` for a size below 1.

    >>> from topology.recordings import load_recording
    >>> from topology.select.tables import build_tables
    >>> tables = build_tables(load_recording("dgx-1-v100"))
    >>> select_set(tables, available=0b11111111, size=4, must_include=0b10000).gpus
    (4, 5, 6, 7)
    >>> select_set(tables, available=0b11, size=4).reason
    <UnfitReason.NOT_ENOUGH_FREE: 'not enough free GPUs'>
    """
    check_request(
        n=machine.n_gpus, available=available | beside, must_include=must_include, size=size
    )
    return _select(machine, SetRequest(available, size, must_include, policy, beside))


@lru_cache(maxsize=1 << 16)
def _select(machine: Machine, request: SetRequest) -> Selected | Unfit:
    n, size = machine.n_gpus, request.size
    available, must_include = request.available, request.must_include
    if size > n:
        return Unfit(UnfitReason.TOO_FEW_GPUS, f"requested {size}, node has {n}")
    if available.bit_count() < size:
        free = available.bit_count()
        return Unfit(UnfitReason.NOT_ENOUGH_FREE, f"requested {size}, {free} of {n} are free")
    if must_include & ~available or must_include.bit_count() > size:
        detail = f"must include {gpus_of(must_include)} of {gpus_of(available)}, size {size}"
        return Unfit(UnfitReason.MUST_INCLUDE, detail)
    best = next(qualifying_sets(machine, request), 0)
    if best:
        is_tabled = isinstance(machine, MachineTables)
        free = available | request.beside if is_tabled else available
        return describe_set(machine, best, available=free, policy=request.policy)
    if isinstance(machine, LargeMachine):
        return why_not_packed(machine, request)
    return why_none(machine, request)


def qualifying_sets(machine: Machine, request: SetRequest) -> Iterator[int]:
    """The sets that a request may get, as masks, best first.

    Of a machine of more than 16 devices those that are packed, which are few.
    """
    if isinstance(machine, LargeMachine):
        return packed_sets(machine, request)
    return free_sets(machine, request)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenSets:
    """The best set for each of some states, in their order; arrays of one length.

    `masks` int64, 0 where no set fits; `loss`, `remainder_cost_gpus` and `value_gbytes_per_s`
    float64 and `has_near_nic` and `satisfies_affinity` bool are those of `Selected`, and mean
    nothing where no set fits.
    """

    masks: NDArray[np.int64]
    value_gbytes_per_s: NDArray[np.float64]
    loss: NDArray[np.float64]
    satisfies_affinity: NDArray[np.bool_]
    has_near_nic: NDArray[np.bool_]
    remainder_cost_gpus: NDArray[np.float64]


def select_sets(
    tables: MachineTables,
    *,
    available: NDArray[np.int64],
    size: int,
    policy: PlacementPolicy = DEFAULT_POLICY,
) -> ChosenSets:
    """Choose the best set of `size` free GPUs for many states of one machine type at once.

    `available` are masks of its GPUs, int64; `size` is 1 or more. The sets are those of
    `select_set`.

    >>> from topology.recordings import load_recording
    >>> from topology.select.tables import build_tables
    >>> tables = build_tables(load_recording("dgx-1-v100"))
    >>> select_sets(tables, available=np.array([0xFF, 0b11, 0xF0]), size=4).masks.tolist()
    [15, 0, 240]
    """
    if size > tables.n_gpus:
        masks = np.zeros(len(available), dtype=np.int64)
    else:
        masks = _best_masks(tables, available, size, policy)
    left = tables.remainder[available & ~masks]
    level = affinity_level(tables, policy.affinity)
    return ChosenSets(
        masks=masks,
        value_gbytes_per_s=tables.value[masks],
        loss=tables.loss[masks],
        satisfies_affinity=np.ones(len(masks), dtype=np.bool_) if level is None else level[masks],
        has_near_nic=tables.has_nic[masks],
        remainder_cost_gpus=(tables.remainder[available] - left) * tables.n_gpus,
    )


def _best_masks(
    tables: MachineTables, available: NDArray[np.int64], size: int, policy: PlacementPolicy
) -> NDArray[np.int64]:
    """The best set of each state, 0 where none fits: the first of `free_sets`, for all at once."""
    best = np.zeros(len(available), dtype=np.int64)
    ordered = ordered_sets(tables, size, policy)
    masks, groups = ordered.masks, ordered.groups
    if not len(masks):
        return best
    is_free = masks & ~available[:, None] == 0
    first = is_free.argmax(axis=1)
    is_free &= groups <= groups[first][:, None]
    states, places = is_free.nonzero()
    if not len(states):
        return best
    left = tables.remainder[available[states] & ~masks[places]]
    begins = np.flatnonzero(np.diff(states, prepend=-1))
    most = np.maximum.reduceat(left, begins)
    is_best = left == most.repeat(np.diff(begins, append=len(states)))
    states, places = states[is_best], places[is_best]
    begins = np.flatnonzero(np.diff(states, prepend=-1))
    best[states[begins]] = masks[places[begins]]
    return best


def describe_set(
    machine: Machine, mask: int, *, available: int, policy: PlacementPolicy
) -> Selected:
    """What taking a set from `available` is worth and costs."""
    if isinstance(machine, LargeMachine):
        return describe_packed(machine, mask, available, policy)
    tables, level = machine, affinity_level(machine, policy.affinity)
    return Selected(
        gpus=gpus_of(mask),
        value_gbytes_per_s=float(tables.value[mask]),
        loss=float(tables.loss[mask]),
        satisfies_affinity=level is None or bool(level[mask]),
        has_near_nic=bool(tables.has_nic[mask]),
        remainder_cost_gpus=remainder_cost(tables, available, mask),
        value_class=int(tables.value_class[mask]),
        limit=Limit(int(tables.limit[mask])),
    )


def remainder_cost(machine: Machine, available: int, taken: int) -> float:
    """R(F) - R(F - S) in GPU-equivalents: what taking a set costs future pods."""
    if isinstance(machine, LargeMachine):
        return shared_cost(machine, available.bit_count(), taken.bit_count())
    share = machine.remainder[available] - machine.remainder[available & ~taken]
    return float(share) * machine.n_gpus
