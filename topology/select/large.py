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
from topology.model import with_links_up
from topology.select.large_machine import (
    LargeMachine,
    large_machine,
    satisfies_level,
    unmet_condition,
    value_of,
)
from topology.select.large_packing import pack_another, pack_set
from topology.select.levels import possible_neighbours
from topology.select.outcome import Selected, SetRequest, Unfit, UnfitReason
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
    from collections.abc import Iterable, Iterator

__all__ = ["describe_packed", "packed_sets", "shared_cost", "why_not_packed"]


def packed_sets(machine: LargeMachine, request: SetRequest) -> Iterator[int]:
    """The sets that are packed and meet the policy's conditions, the preferred one first.

    The caller has checked masks and counts (`topology.select.selection.select_set`).
    """
    packed = _packed(machine, request)
    best = next(iter(_preferred(machine, packed, request.policy)), None)
    if best is None:
        return
    yield best
    beside = [(pack_another(machine, domain, request), domain) for _, domain in packed]
    others = [*packed, *((mask, domain) for mask, domain in beside if mask is not None)]
    yield from (one for one in _preferred(machine, others, request.policy) if one != best)


def why_not_packed(machine: LargeMachine, request: SetRequest) -> Unfit:
    """Why no packed set meets the policy's conditions."""
    size, policy = request.size, request.policy
    packed = [mask for mask, _ in _packed(machine, request)]
    if not packed:
        return Unfit(UnfitReason.MIXED_MODELS, f"{size} devices of one model")
    # The condition that is met last: those before it can be met.
    unmet = [reasons for mask in packed if (reasons := unmet_condition(machine, mask, policy))]
    never, taken = max(unmet, key=lambda reasons: list(UnfitReason).index(reasons[0]))
    detail = f"{size} devices, affinity {policy.affinity.value}"
    empty = SetRequest(machine.all_gpus, size, 0, policy)
    if request == empty:
        return Unfit(_or_unknown(machine, packed, never, size, policy), detail)
    is_possible = next(packed_sets(machine, empty), None) is not None
    return Unfit(taken if is_possible else why_not_packed(machine, empty).reason, detail)


def _packed(machine: LargeMachine, request: SetRequest) -> list[tuple[int, int]]:
    """The set of each part of the machine in which one is packed, and that part."""
    policy, size, must = request.policy, request.size, request.must_include
    mixes = policy.affinity is Affinity.NONE
    areas = [request.available & model for model in (machine.all_gpus,) * mixes or machine.models]
    domains = [part & area for area in areas for part in _near(machine, area, size, policy)]
    return [
        (pack_set(machine, domain, request), domain)
        for domain in dict.fromkeys(domains + areas)
        if domain.bit_count() >= size >= must.bit_count() and must & ~domain == 0
    ]


def _preferred(
    machine: LargeMachine, packed: Iterable[tuple[int, int]], policy: PlacementPolicy
) -> list[int]:
    """The sets that meet the policy's conditions, each once: wishes, value, the tightest part."""

    def key(option: tuple[int, int]) -> tuple[object, ...]:
        mask, domain = option
        lacks_nic = policy.nic is NicRule.PREFERRED and not mask & machine.near_rdma
        is_valued = not is_remainder_first(policy, mask.bit_count())
        value = value_of(machine, mask)[0] if is_valued else 0.0
        lacks_level = not satisfies_level(machine, mask, policy.affinity)
        return lacks_level, lacks_nic, -value, domain.bit_count(), gpus_of(mask)

    fitting = [one for one in packed if unmet_condition(machine, one[0], policy) is None]
    return list(dict.fromkeys(mask for mask, _ in sorted(fitting, key=key)))


def _or_unknown(
    machine: LargeMachine,
    packed: list[int],
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
    rated = [(mask, *value_of(machine, mask)) for mask in packed]
    sure = [
        value * (1 - STATED_ERROR[limit])
        for mask, value, limit in rated
        if not is_known_set(machine.topology, mask, limit)
    ]
    floor = policy.min_bandwidth_gbytes_per_s or 0.0
    might = bool(sure) and (has_dark_links(machine.topology) or max(sure) >= floor)
    return never if machine.is_even and not might else UnfitReason.BANDWIDTH_UNKNOWN


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


def describe_packed(
    machine: LargeMachine, mask: int, available: int, policy: PlacementPolicy
) -> Selected:
    """What taking a set from `available` is worth, beside the best value of its size, and costs."""
    size = mask.bit_count()
    best = _best_value_of(machine, size)
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
    """The best value of what is packed on the empty machine, one set of each GPU model.

    With all links up, if that is more, as in the tables of smaller machines.
    """
    areas = [model for model in machine.models if model.bit_count() >= size]
    areas = areas or [machine.all_gpus]
    request = SetRequest(machine.all_gpus, size, 0, DEFAULT_POLICY)
    wholes = with_links_up(machine.topology)
    machines = machine, *(large_machine(one, machine.demand) for one in wholes)
    return max(value_of(one, pack_set(one, area, request))[0] for one in machines for area in areas)


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
