"""Which devices a container gets: the answer to GetPreferredAllocation.

The answer is exactly `size` of the available ids, with all that must be included; or a refusal with
its reason. Where all else is equal, the machine's order decides.

Rules, first match decides (design of Coterie, section 5):

1. Refused: not enough devices that are healthy and free, or one that must be included is not;
   more than one replica of shared devices where that is forbidden (failRequestsGreaterThanOne).
2. The plan, where all its devices are available and it still meets what the pod requires: a link
   may have gone down since.
3. Otherwise the core's best set under the pod's policy; for an unknown requester the set that costs
   others least. Devices planned for other pending containers are spared where that leaves a set.
4. What a pod *requires* is never silently reduced: a required affinity or NIC, or a minimum
   bandwidth, that no set meets, or that is unknown, is refused. A *preferred* pod gets a lesser set
   and a note.

Where several containers may be the requester, the first available plan is taken (a swap of equal
plans suits all), else a set that meets the requirements of all of them.

Devices without links between them, replicas of shared GPUs and partitions, are counted instead
(`plugin.allocation.packing`): pods cannot require anything of two or more of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from plugin.allocation.best_set import (
    LEAST_HARM,
    BestSet,
    NoSet,
    describe_requirement,
    find_best_set,
    knows,
    requires,
    serves,
)
from plugin.allocation.packing import DevicePool, pack
from plugin.allocation.pod_matching import candidates_of
from plugin.machine import SharedPolicy
from topology.annotations import DEFAULT_POLICY, PlacementPolicy, parse_policy
from topology.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugin.allocation.pod_matching import DeviceRequest, Identified, Requester
    from plugin.machine import Resource
    from topology.select import Machine

__all__ = [
    "Allocation",
    "AllocationBasis",
    "AllocationRefusal",
    "RefusalReason",
    "Supply",
    "choose_devices",
]


class AllocationBasis(Enum):
    """Why these devices."""

    PLANNED = "planned"
    """They are the plan's."""
    SWAPPED = "swapped"
    """They are the plan of one of several possible requesters."""
    SUBSTITUTE = "substitute"
    """The plan is not available; the best available set under the pod's policy."""
    BEST = "best"
    """There is no plan; the best available set under the pod's policy."""
    LEAST_HARM = "least-harm"
    """The requester is unknown; the set that others need least."""


class RefusalReason(Enum):
    """Why there is no answer; constant sentences."""

    TOO_FEW = "not enough devices that are healthy and free"
    MUST_INCLUDE = "a device that must be included is not available"
    ONE_ONLY = "a container may request one replica of a shared device only"
    REQUIRED = "no set of devices meets the pod's requirements"


@dataclass(frozen=True, slots=True)
class Allocation:
    """The answer, in the machine's order. `notes` name preferences that it does not meet."""

    ids: tuple[str, ...]
    basis: AllocationBasis
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationRefusal:
    """There is no answer, and the pod fails. `detail` names request and finding."""

    reason: RefusalReason
    detail: str

    def __str__(self) -> str:
        """One sentence."""
        return f"{self.reason.value}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Supply:
    """One resource of the node at this moment.

    `machine` is the machine type of a topology whose GPUs are the resource's devices (by uuid);
    None where there is none. `unhealthy` and `held` are ids that must not be allocated, whatever
    the kubelet knows of them yet: the ones have a fault, the others are a container's. `reserved`
    are planned for other pending containers. `busy_gpus` are uuids of physical GPUs of which
    anything is held, of any resource.
    """

    resource: Resource
    machine: Machine | None = None
    unhealthy: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    reserved: frozenset[str] = frozenset()
    busy_gpus: frozenset[str] = frozenset()
    shared_policy: SharedPolicy = SharedPolicy.DISTRIBUTED
    is_one_only: bool = False


def choose_devices(
    request: DeviceRequest, requester: Requester, supply: Supply
) -> Allocation | AllocationRefusal:
    """Choose the devices to answer with. O(candidates) selections of the core."""
    known = {device.id for device in supply.resource.devices}
    usable = (request.available & known) - supply.unhealthy - supply.held
    impossible = _impossible(request, usable, supply)
    if impossible is not None:
        return impossible
    candidates = candidates_of(requester)
    parsed = [_policy_of(one) for one in candidates]
    policies = [policy for policy, _ in parsed] or [LEAST_HARM]
    notes = [note for _, note in parsed if note]
    required = [policy for policy in policies if requires(policy, request.size)]
    for one in candidates:
        problem = _plan_problem(one, request, usable, supply=supply, required=required)
        if one.planned and not problem:
            basis = AllocationBasis.PLANNED if len(candidates) == 1 else AllocationBasis.SWAPPED
            return Allocation(_ordered(one.planned, supply), basis, tuple(notes))
        notes += [f"plan of {_name(one)} cannot be kept: {problem}"] if problem else []
    found = _without_plan(request, usable, supply, policies, required)
    if isinstance(found, NoSet):
        return AllocationRefusal(RefusalReason.REQUIRED, "; ".join((found.detail, *notes)))
    if not candidates:
        basis = AllocationBasis.LEAST_HARM
    elif any(one.planned for one in candidates):
        basis = AllocationBasis.SUBSTITUTE
    else:
        basis = AllocationBasis.BEST
    return Allocation(_ordered(found.ids, supply), basis, (*notes, *found.lacks))


def _impossible(
    request: DeviceRequest, usable: frozenset[str], supply: Supply
) -> AllocationRefusal | None:
    is_shared = any(device.replica is not None for device in supply.resource.devices)
    if supply.is_one_only and is_shared and request.size > 1:
        return AllocationRefusal(RefusalReason.ONE_ONLY, f"requested {request.size}, expected 1")
    lost = ", ".join(sorted(request.must_include - usable))
    if lost:
        return AllocationRefusal(
            RefusalReason.MUST_INCLUDE, f"{lost} is unhealthy, held or unknown"
        )
    if len(request.must_include) > request.size:
        detail = f"{len(request.must_include)} must be among {request.size}"
        return AllocationRefusal(RefusalReason.MUST_INCLUDE, detail)
    if len(usable) < request.size:
        detail = f"requested {request.size}, available {len(usable)}"
        return AllocationRefusal(RefusalReason.TOO_FEW, detail)
    return None


def _policy_of(one: Identified) -> tuple[PlacementPolicy, str]:
    """A pod's policy; the default, and why, where its annotations cannot be read."""
    try:
        return parse_policy(one.pod.annotations), ""
    except PolicyError as error:
        return DEFAULT_POLICY, f"pod {one.pod.namespace}/{one.pod.name} placed by default: {error}"


def _plan_problem(
    one: Identified,
    request: DeviceRequest,
    usable: frozenset[str],
    *,
    supply: Supply,
    required: Sequence[PlacementPolicy],
) -> str:
    """Why a plan cannot be kept; empty where it can, or there is none."""
    planned = frozenset(one.planned)
    missing = ", ".join(sorted(planned - usable))
    others = ", ".join(sorted(request.must_include - planned))
    if not planned:
        return ""
    if missing:
        return f"{missing} is not available"
    if len(planned) != request.size:
        return f"it names {len(planned)} devices, the kubelet requests {request.size}"
    if others:
        return f"the kubelet allocates {others} in any case"
    machine = _machine(supply, usable) if required else None
    if machine is None or all(serves(planned, policy, machine) for policy in required):
        return ""
    return "it no longer meets what is required"


def _name(one: Identified) -> str:
    return f"{one.pod.namespace}/{one.pod.name} container {one.container.name}"


def _without_plan(
    request: DeviceRequest,
    usable: frozenset[str],
    supply: Supply,
    policies: Sequence[PlacementPolicy],
    required: Sequence[PlacementPolicy],
) -> BestSet | NoSet:
    spared = usable - supply.reserved | request.must_include
    areas = [area for area in dict.fromkeys((spared, usable)) if len(area) >= request.size]
    machine = _machine(supply, usable)
    if machine is not None and (required or not _is_counted(supply.resource)):
        return find_best_set(
            machine, areas, must_include=request.must_include, size=request.size, policies=policies
        )
    if required:
        return NoSet(
            f"{describe_requirement(required[0])}: how these devices are connected is unknown"
        )
    pool = DevicePool(
        devices=supply.resource.devices,
        usable=areas[0],
        held=supply.held,
        busy_gpus=supply.busy_gpus,
    )
    ids = pack(
        pool, must_include=request.must_include, size=request.size, policy=supply.shared_policy
    )
    return BestSet(frozenset(ids), ())


def _machine(supply: Supply, usable: frozenset[str]) -> Machine | None:
    """The machine type, if it knows all these devices."""
    is_known = supply.machine is not None and knows(supply.machine, usable)
    return supply.machine if is_known else None


def _is_counted(resource: Resource) -> bool:
    return any(one.replica is not None or one.partition is not None for one in resource.devices)


def _ordered(ids: Iterable[str], supply: Supply) -> tuple[str, ...]:
    chosen = set(ids)
    return tuple(device.id for device in supply.resource.devices if device.id in chosen)
