"""Which GPUs each container of a pod gets, all containers chosen together.

What it answers: for a pod's container requests on one node's free GPUs, a set for every container,
or why the pod does not fit. It changes nothing and knows no Kubernetes object.

Method. Sidecars and app containers hold their GPUs side by side, so their sets are disjoint and
chosen jointly: first the worst container's shortfall (its loss in value classes; a set without the
wished NIC behind every set with it, and one without the wished affinity behind those) is made as
small as can be, then the union's remainder as large, then the single sets in the order of
`topology.select.selection`. The joint choice is exact up to 16 GPUs (`topology.select.joint`);
above 16 devices containers are served one after another, largest first.

A plain init container ends before the next one starts and hands its GPUs on (kubelet device
manager, `devicesToAllocate`: what init containers leave behind is reused, by later init containers
too, before the plugin is called). So its set lies inside the set of the next container that keeps
its GPUs (a later sidecar, else the first app), or, where it requests more, holds it; and it lies
inside what earlier init containers hand on, or holds all of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from topology.annotations import DEFAULT_POLICY, PlacementPolicy
from topology.errors import InvalidRequest, quote
from topology.select.joint import select_jointly
from topology.select.outcome import Selected, SetRequest, Unfit, UnfitReason
from topology.select.qualifying import ordered_sets, why_none
from topology.select.selection import check_request, remainder_cost, select_set
from topology.select.tables import MachineTables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.select.selection import Machine

__all__ = ["ContainerRequest", "ContainerRole", "PodFit", "fit_pod", "join_sets", "pod_size"]


class ContainerRole(Enum):
    """How a container holds its GPUs: INIT hands them on, SIDECAR and APP keep them."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One container that requests GPUs; `size` is at least 1."""

    name: str
    size: int
    role: ContainerRole = ContainerRole.APP

    def __post_init__(self) -> None:
        if self.size < 1:
            msg = f"container {quote(self.name)} requests {self.size} GPUs, expected at least 1"
            raise InvalidRequest(msg)


@dataclass(frozen=True, slots=True)
class PodFit:
    """A set for every container.

    `containers` in the order of the request; `used` is the mask of all their GPUs; `worst` is the
    container's set with the largest loss (affinity missed first), whose figures speak for the pod.
    `remainder_cost_gpus` is what the union costs.
    """

    containers: tuple[tuple[str, Selected], ...]
    used: int
    worst: Selected
    remainder_cost_gpus: float


@lru_cache(maxsize=1 << 10)
def pod_size(requests: tuple[ContainerRequest, ...]) -> int:
    """GPUs that a pod holds at once: kube-scheduler's effective request.

    Sidecars and apps add up; an init container needs its own GPUs beside the sidecars before it.

    >>> pod_size((ContainerRequest("i", 4, ContainerRole.INIT), ContainerRequest("a", 2)))
    4
    """
    sidecars = 0
    inits: list[int] = []
    for request in requests:
        if request.role is ContainerRole.SIDECAR:
            sidecars += request.size
        elif request.role is ContainerRole.INIT:
            inits.append(sidecars + request.size)
    apps = sum(r.size for r in requests if r.role is ContainerRole.APP)
    return max([*inits, sidecars + apps])


def fit_pod(
    machine: Machine,
    *,
    available: int,
    requests: tuple[ContainerRequest, ...],
    policy: PlacementPolicy = DEFAULT_POLICY,
    beside: int = 0,
) -> PodFit | Unfit:
    """Choose a set for every container of a pod, or say why there is none.

    GPUs `beside` are free as well and not to be chosen: they count in what is left behind. Where
    fewer are free than requested, and up to 16 GPUs, the reason is that the machine has no set for
    one of the containers, if it has none: waiting would not help. Raises `InvalidRequest` for no
    request at all or two of one name, `UnknownDevice` for GPUs that the node has not.

    >>> from topology.recordings import load_recording
    >>> from topology.select.selection import build_machine
    >>> machine = build_machine(load_recording("dgx-1-v100"))
    >>> fit = fit_pod(machine, available=0xFF, requests=(ContainerRequest("train", 4),))
    >>> fit.worst.gpus
    (0, 1, 2, 3)
    """
    names = [request.name for request in requests]
    if not names or len(names) != len(set(names)):
        msg = (
            f"pod requests GPUs in containers {quote(names)}, expected one or more, each named once"
        )
        raise InvalidRequest(msg)
    check_request(n=machine.n_gpus, available=available | beside, must_include=0, size=1)
    return _fit(machine, available, requests, policy, beside)


@lru_cache(maxsize=1 << 16)
def _fit(
    machine: Machine,
    available: int,
    requests: tuple[ContainerRequest, ...],
    policy: PlacementPolicy,
    beside: int,
) -> PodFit | Unfit:
    wanted = pod_size(requests)
    if wanted > machine.n_gpus:
        detail = f"pod requests {wanted}, node has {machine.n_gpus}"
        return Unfit(UnfitReason.TOO_FEW_GPUS, detail)
    if wanted > available.bit_count():
        never = _never(machine, requests, policy)
        if never is not None:
            return never
        detail = f"pod requests {wanted}, {available.bit_count()} of {machine.n_gpus} are free"
        return Unfit(UnfitReason.NOT_ENOUGH_FREE, detail)
    lasting = [r for r in requests if r.role is not ContainerRole.INIT]
    sets = _joint(
        machine,
        available,
        tuple(r.size for r in lasting),
        policy=policy,
        beside=beside,
    )
    if isinstance(sets, Unfit):
        return sets
    chosen = _with_inits(
        machine,
        available=available,
        requests=requests,
        lasting={one.name: found for one, found in zip(lasting, sets, strict=True)},
        policy=policy,
    )
    if isinstance(chosen, Unfit):
        return chosen
    return join_sets(machine, available=available | beside, requests=requests, chosen=chosen)


@lru_cache(maxsize=1 << 12)
def _never(
    machine: Machine, requests: tuple[ContainerRequest, ...], policy: PlacementPolicy
) -> Unfit | None:
    """Why the machine has no set for one of the containers, whatever is free; None where it has.

    Only what its tables say at once: above 16 GPUs, and of containers together, it takes
    longer, for which a node with too few free GPUs should not wait.
    """
    if not isinstance(machine, MachineTables):
        return None
    every = (1 << machine.n_gpus) - 1
    for size in dict.fromkeys(request.size for request in requests):
        if not len(ordered_sets(machine, size, policy).masks):
            why = why_none(machine, SetRequest(every, size, 0, policy))
            if why.reason is not UnfitReason.MIXED_MODELS:  # which is said of free GPUs alone
                return why
    return None


def join_sets(
    machine: Machine,
    *,
    available: int,
    requests: tuple[ContainerRequest, ...],
    chosen: Mapping[str, Selected],
) -> PodFit:
    """The sets of a pod's containers, by name, as one choice of what is `available`."""
    used = 0
    for selected in chosen.values():
        used |= selected.mask
    return PodFit(
        containers=tuple((r.name, chosen[r.name]) for r in requests),
        used=used,
        worst=max(chosen.values(), key=lambda s: (not s.satisfies_affinity, s.loss)),
        remainder_cost_gpus=remainder_cost(machine, available, used),
    )


def _joint(
    machine: Machine,
    available: int,
    sizes: tuple[int, ...],
    *,
    policy: PlacementPolicy,
    beside: int,
) -> tuple[Selected, ...] | Unfit:
    """Disjoint sets for containers that hold their GPUs side by side."""
    if len(sizes) > 1 and isinstance(machine, MachineTables):
        return select_jointly(machine, available, sizes, policy=policy, beside=beside)
    chosen: dict[int, Selected] = {}
    for place in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        found = select_set(
            machine,
            available=available,
            beside=beside,
            size=sizes[place],
            policy=policy,
        )
        if isinstance(found, Unfit):
            return found
        chosen[place] = found
        available &= ~found.mask
    return tuple(chosen[place] for place in range(len(sizes)))


def _with_inits(
    machine: Machine,
    *,
    available: int,
    requests: tuple[ContainerRequest, ...],
    lasting: dict[str, Selected],
    policy: PlacementPolicy,
) -> dict[str, Selected] | Unfit:
    """Add the init containers' sets to the sets of those that keep theirs."""
    chosen = dict(lasting)
    handed, free = 0, available
    apps = [lasting[r.name].mask for r in requests if r.role is ContainerRole.APP]
    for place, request in enumerate(requests):
        if request.role is ContainerRole.SIDECAR:
            handed &= ~lasting[request.name].mask
            free &= ~lasting[request.name].mask
        elif request.role is ContainerRole.INIT:
            later = [r.name for r in requests[place:] if r.role is ContainerRole.SIDECAR]
            areas = [lasting[name].mask for name in later] + apps
            inner, outer = _area(handed, areas, free, request.size)
            found = select_set(
                machine,
                available=outer,
                must_include=inner,
                size=request.size,
                policy=policy,
            )
            if isinstance(found, Unfit):
                return found
            chosen[request.name] = found
            handed |= found.mask
    return chosen


def _area(handed: int, areas: list[int], free: int, size: int) -> tuple[int, int]:
    """What an init container of `size` must hold, and where it must lie, in the kubelet's order.

    `handed` comes from earlier init containers; `areas` are the sets that follow, next one first.
    """
    inner, outer = 0, handed
    for area in (*areas, free):
        if outer.bit_count() >= size:
            break
        inner, outer = outer, outer | area
    return inner, outer
