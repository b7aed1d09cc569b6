"""Nodes of more than 16 devices: MIG slices, time-sliced replicas, rack-scale NVLink domains.

What it answers: the same question as `topology.select.selection` where a table of every set (2**n)
is out of reach. It packs: no set is compared with others, so that a choice takes no time.

Method.

- Devices are grouped (same parent GPU, same PCIe switch, same socket, nearest first) and taken from
  the group with the fewest free devices that still holds the request, else whole groups first, most
  free first; then lowest ids. Where the pod wishes a NIC, one device near a NIC is packed first.
  Where links join a part of the machine and not the packed set, the set grows along links instead.
- Both are done for every part of the machine in which the affinity level can hold; the set that
  serves the policy best (wishes, then value) is taken, of equal ones that from the part with the
  fewest free devices.
- *Even* machine: one up fabric with equal ports joins all devices, or no link joins any, all PCIe
  levels are equal and so are the sockets. A set's value depends on its size alone, so value and
  remainder are exact and every set ties. Elsewhere a better set may be missed, so no lower bound of
  the bandwidth is called out of reach, and what is left behind is counted as on an even machine.

The runner-up is the next of the packed sets, or what is packed without the last device of the set.

The value of one set is `topology.value.set_value.set_value` in both cases. Measurements are not
applied above 16 devices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from topology.annotations import (
    DEFAULT_POLICY,
    Affinity,
    NicRule,
    PlacementPolicy,
    is_remainder_first,
)
from topology.select.large_machine import (
    LargeMachine,
    satisfies_level,
    unmet_condition,
    value_of,
)
from topology.select.large_packing import PackRequest, pack_another, pack_set
from topology.select.levels import possible_neighbours
from topology.select.outcome import Selected, Unfit, UnfitReason
from topology.select.tables import VALUE_CLASS_GAP
from topology.value import (
    STATED_ERROR,
    gpus_maybe_near_rdma,
    gpus_of,
    has_dark_links,
    is_known_set,
    islands_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["next_large", "select_large", "shared_cost"]


def select_large(
    machine: LargeMachine,
    *,
    available: int,
    must_include: int,
    size: int,
    policy: PlacementPolicy = DEFAULT_POLICY,
) -> Selected | Unfit:
    """Choose a set of `size` available devices that holds `must_include`.

    The caller has checked masks and counts (`topology.select.selection.select_set`).
    """
    able = _able(machine, available, must_include, size, policy)
    if not able:
        return Unfit(UnfitReason.MIXED_MODELS, f"{size} devices of one model")
    request = PackRequest(must_include, size, policy)
    best = _best_value_of(machine, size)
    found = [
        _rate(machine, pack_set(machine, domain, request), available, policy, best)
        for domain in able
    ]
    fitting = _fitting(machine, zip(found, able, strict=True), policy)
    if fitting:
        return fitting[0]
    detail = f"{size} devices, affinity {policy.affinity.value}"
    never, taken = min(
        filter(None, (unmet_condition(machine, entry.mask, policy) for entry in found)), key=_late
    )
    everything = machine.all_gpus
    if available != everything or must_include:
        empty = select_large(
            machine,
            available=everything,
            must_include=0,
            size=size,
            policy=policy,
        )
        return Unfit(taken if isinstance(empty, Selected) else empty.reason, detail)
    return Unfit(_or_unknown(machine, found, never, size, policy), detail)


def next_large(
    machine: LargeMachine,
    chosen: Selected,
    *,
    available: int,
    must_include: int,
    policy: PlacementPolicy,
) -> Selected | None:
    """The best other set of those that are packed, None where none of them fits."""
    size = len(chosen.gpus)
    able = _able(machine, available, must_include, size, policy)
    request = PackRequest(must_include, size, policy)
    best = _best_value_of(machine, size)
    others = [
        (_rate(machine, mask, available, policy, best), domain)
        for domain in able
        for mask in (pack_set(machine, domain, request), pack_another(machine, domain, request))
        if mask is not None and mask != chosen.mask
    ]
    fitting = _fitting(machine, others, policy)
    return fitting[0] if fitting else None


def _able(
    machine: LargeMachine, available: int, must_include: int, size: int, policy: PlacementPolicy
) -> list[int]:
    """The parts of the machine in which a set is packed."""
    mixes = policy.affinity is Affinity.NONE
    areas = [available & model for model in (machine.all_gpus,) * mixes or machine.models]
    domains = [part & area for area in areas for part in _near(machine, area, size, policy)]
    return [
        domain
        for domain in dict.fromkeys(domains + areas)
        if domain.bit_count() >= size and must_include & ~domain == 0
    ]


def _fitting(
    machine: LargeMachine, found: Iterable[tuple[Selected, int]], policy: PlacementPolicy
) -> list[Selected]:
    """The sets that meet the policy's conditions, each with its part, the preferred one first."""
    fitting = [
        (_rank(machine, entry, policy), domain.bit_count(), entry.gpus, entry)
        for entry, domain in found
        if unmet_condition(machine, entry.mask, policy) is None
    ]
    return [entry for *_, entry in sorted(fitting, key=lambda option: option[:3])]


def _or_unknown(
    machine: LargeMachine,
    found: list[Selected],
    never: UnfitReason,
    size: int,
    policy: PlacementPolicy,
) -> UnfitReason:
    """The reason "never", unless the condition might hold if all unknowns were favourable."""
    if never is UnfitReason.AFFINITY_NEVER:
        might = _might_hold(machine, size, policy.affinity)
        return UnfitReason.AFFINITY_UNKNOWN if might else never
    if never is UnfitReason.NIC_NEVER:
        return UnfitReason.NIC_UNKNOWN if gpus_maybe_near_rdma(machine.topology) else never
    dark = [e for e in found if not is_known_set(machine.topology, e.mask, e.limit)]
    floor = policy.min_bandwidth_gbytes_per_s or 0.0
    sure = [e.value_gbytes_per_s * (1 - STATED_ERROR[e.limit]) for e in dark]
    might = bool(dark) and (has_dark_links(machine.topology) or max(sure) >= floor)
    return never if machine.is_even and not might else UnfitReason.BANDWIDTH_UNKNOWN


def _late(reasons: tuple[UnfitReason, UnfitReason]) -> int:
    """Sort key: the condition that is met last stands first, since the others can be met."""
    return -list(UnfitReason).index(reasons[0])


def _might_hold(machine: LargeMachine, size: int, affinity: Affinity) -> bool:
    """Whether some set would have a level if all unknowns were favourable."""
    rows = possible_neighbours(machine.topology, affinity)
    return any(
        island.bit_count() >= size for model in machine.models for island in islands_of(rows, model)
    )


def _near(machine: LargeMachine, area: int, size: int, policy: PlacementPolicy) -> list[int]:
    """The parts of an area inside which the affinity level can hold."""
    if size == 1:
        return []
    sockets, trees, *_ = machine.levels
    if policy.affinity is Affinity.PCIE_SWITCH:
        return list(trees)
    if policy.affinity is Affinity.NUMA:
        return list(sockets)
    return islands_of(machine.capacities.adjacency, area)


def _rank(
    machine: LargeMachine, entry: Selected, policy: PlacementPolicy
) -> tuple[bool, bool, float]:
    lacks_nic = policy.nic is NicRule.PREFERRED and not entry.mask & machine.near_rdma
    value = 0.0 if is_remainder_first(policy, len(entry.gpus)) else entry.value_gbytes_per_s
    return (not entry.satisfies_affinity, lacks_nic, -value)


def _rate(
    machine: LargeMachine, mask: int, available: int, policy: PlacementPolicy, best: float
) -> Selected:
    """A set beside the best value of its size."""
    size = mask.bit_count()
    value, limit = value_of(machine, mask)
    return Selected(
        gpus=gpus_of(mask),
        value_gbytes_per_s=value,
        loss=max(0.0, 1 - value / best) if best > 0 else 0.0,
        satisfies_affinity=satisfies_level(machine, mask, policy.affinity),
        has_near_nic=bool(mask & machine.near_rdma),
        remainder_cost_gpus=shared_cost(machine, available.bit_count(), size),
        value_class=0 if value >= best * (1 - VALUE_CLASS_GAP) else 1,
        limit=limit,
    )


@lru_cache(maxsize=1024)
def _best_value_of(machine: LargeMachine, size: int) -> float:
    """The best value of what is packed on the empty machine, one set of each GPU model."""
    areas = [model for model in machine.models if model.bit_count() >= size]
    areas = areas or [machine.all_gpus]
    request = PackRequest(0, size, DEFAULT_POLICY)
    sets = [pack_set(machine, area, request) for area in areas]
    return max(value_of(machine, mask)[0] for mask in sets)


def shared_cost(machine: LargeMachine, n_free: int, n_taken: int) -> float:
    """R(F) - R(F - S) in GPU-equivalents, by count, as on an even machine."""
    lost = _share(machine, n_free) - _share(machine, n_free - n_taken)
    return lost * machine.n_gpus


def _share(machine: LargeMachine, n_free: int) -> float:
    """R of any n free devices of an even machine: whole sets that still fit."""
    fitting = [(d, weight) for d, weight in machine.demand.sizes if d <= machine.n_gpus]
    total = sum(weight for _, weight in fitting)
    if not total:
        return n_free / machine.n_gpus
    held = sum(weight * (n_free // d) / (machine.n_gpus // d) for d, weight in fitting)
    return held / total
