"""The best set of devices under a pod's policy, and what it must serve.

A policy *requires* where a lesser set must not be allocated: `required` with an affinity level, a
required NIC, a minimum bandwidth. One device meets every affinity and bandwidth. Everything else in
a policy is a preference: what the set lacks of it becomes a note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.annotations import Affinity, NicRule, PlacementPolicy, Strength
from topology.select import Selected, select_set
from topology.value import mask_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.select import Machine, Unfit

__all__ = [
    "LEAST_HARM",
    "BestSet",
    "NoSet",
    "describe_requirement",
    "find_best_set",
    "knows",
    "requires",
    "serves",
]

LEAST_HARM = PlacementPolicy(affinity=Affinity.NONE)
"""The policy of an unknown requester: the set that leaves the most behind for others."""
_MIXED = ("no free GPUs of one model are as many: models are mixed",)


@dataclass(frozen=True, slots=True)
class BestSet:
    """Devices, and the preferences that they do not meet."""

    ids: frozenset[str]
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoSet:
    """No set meets the requirements; `detail` names them, and the core's reason."""

    detail: str


def requires(policy: PlacementPolicy, size: int) -> bool:
    """Whether a set of this size must meet a condition."""
    is_level = policy.affinity not in {Affinity.ANY, Affinity.NONE}
    is_strict = policy.strength is Strength.REQUIRED and is_level
    is_wide = is_strict or policy.min_bandwidth_gbytes_per_s is not None
    return policy.nic is NicRule.REQUIRED or (is_wide and size > 1)


def knows(machine: Machine, ids: frozenset[str]) -> bool:
    """Whether a machine type's topology has all these devices."""
    return ids <= _positions(machine).keys()


def serves(ids: frozenset[str], policy: PlacementPolicy, machine: Machine) -> bool:
    """Whether a set meets what a policy requires.

    The core chooses the best set among exactly these devices, so that its own rules apply.
    """
    if not requires(policy, len(ids)):
        return True
    found = _by_core(machine, ids, must_include=ids, size=len(ids), policy=policy)
    return isinstance(found, Selected)


def find_best_set(
    machine: Machine,
    areas: Sequence[frozenset[str]],
    *,
    must_include: frozenset[str],
    size: int,
    policies: Sequence[PlacementPolicy],
) -> BestSet | NoSet:
    """The best set in the first of some areas that has one.

    Each area has `size` devices or more, with all of `must_include`. The set must meet what every
    policy requires: the best set of the first policy that does so is taken, at last the one that
    costs others least. That may mix GPU models, which no required bandwidth or level allows.
    """
    required = [policy for policy in policies if requires(policy, size)]
    tried = required or policies[:1]
    attempts = [(area, policy) for area in areas for policy in tried]
    why = "no set meets the requirements of every pod that may be requesting"
    for area, policy in (*attempts, (areas[0], LEAST_HARM)):
        found = _by_core(machine, area, must_include=must_include, size=size, policy=policy)
        if not isinstance(found, Selected):
            why = found.reason.value
            continue
        ids = frozenset(uuid for uuid, i in _positions(machine).items() if i in found.gpus)
        if all(serves(ids, other, machine) for other in required):
            is_mixed = not required and policy is not tried[0]
            return BestSet(ids, _MIXED if is_mixed else _lacks(found, policy))
    return NoSet(f"{describe_requirement(tried[0])}: {why}")


def _by_core(
    machine: Machine,
    area: frozenset[str],
    *,
    must_include: frozenset[str],
    size: int,
    policy: PlacementPolicy,
) -> Selected | Unfit:
    positions = _positions(machine)
    return select_set(
        machine,
        available=mask_of(positions[one] for one in area),
        must_include=mask_of(positions[one] for one in must_include),
        size=size,
        policy=policy,
    )


def _positions(machine: Machine) -> dict[str, int]:
    return {gpu.uuid: i for i, gpu in enumerate(machine.topology.gpus) if gpu.uuid is not None}


def _lacks(found: Selected, policy: PlacementPolicy) -> tuple[str, ...]:
    """The preferences that a set does not meet."""
    lacks: list[str] = []
    if not found.satisfies_affinity:
        lacks.append(f"no free set has affinity {policy.affinity.value}")
    if policy.nic is NicRule.PREFERRED and not found.has_near_nic:
        lacks.append("no free set has an RDMA NIC within PXB")
    return tuple(lacks)


def describe_requirement(policy: PlacementPolicy) -> str:
    """What a policy requires, in words."""
    parts: list[str] = []
    if policy.strength is Strength.REQUIRED and policy.affinity is not Affinity.ANY:
        parts.append(f"affinity {policy.affinity.value}")
    if policy.nic is NicRule.REQUIRED:
        parts.append("an RDMA NIC within PXB")
    if policy.min_bandwidth_gbytes_per_s is not None:
        parts.append(f"at least {policy.min_bandwidth_gbytes_per_s:g} GB/s")
    return ", ".join(parts)
