"""Which pod has which devices of one resource of a node: the account, derived from the facts.

For a resource that a node serves, its pods and its nominations: which devices each of them has, how
sure that is, and what cannot be accounted for. A function of its arguments, so that the same
devices are free in whatever order the facts became known, and after a restart. Each rule gives a
pod only what the rules before left, so no device ever has two owners.

A node that serves several resources has an account of each. They have no device in common: the
kubelet gives each device under one resource, and a GPU that is partitioned is not given whole. A
pod's plan belongs to the account of its resource, or of the resource whose devices it names.

The rules, each before the next:

1. What really is, wins: devices that the node's report or a pod's status names are *held*, planned
   or not, also by pods that no watch has shown.
2. A plan has its devices, bound or in flight, where no pod holds them. Of two plans that name one
   device the pod seen first has it; the other one is *contested* and keeps the rest.
3. A pod may have *devices unknown*: it has as many as it requests, any that are
   free; where they run out, none. A resource with such a pod is count-only: the kubelet gave the
   pod devices, and it is not known which. Not so a pod without a plan of which the node's report
   shows that it runs without devices: what it has is in that report too, mostly nothing. Nor are
   devices unknown that a plan or the node's report names and the node's topology does not: they
   were the node's when they were named, so they are *removed*, and no pod can have them.
4. A nomination claims, of what is then free and healthy, the set that the core would choose: the
   highest priority first, then the pod seen first. Where there is none, the set is chosen with what
   pods under deletion still have, and the free part of it is claimed: victims end one by one, and
   what the first one left would else be given away before the last one has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from extender.state.node_record import mask_of
from extender.state.pod_record import PodStage
from topology.annotations import ContainerPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from extender.protocol import PodRequest
    from extender.state.node_record import NodeRecord, NodeResource
    from extender.state.nominations import Nomination
    from extender.state.pod_record import PodRecord
    from kube.objects import ContainerDevices
    from topology.annotations import DeviceHold, Plan

__all__ = [
    "Account",
    "Assignment",
    "AssignmentState",
    "make_account",
    "open_accounts",
]


class AssignmentState(Enum):
    """How sure it is that a pod has its devices."""

    # Enum's own hashes the member's name, by a call in Python: each look-up in a table makes two.
    __hash__ = object.__hash__

    CLAIMED = "claimed"
    ASSUMED = "assumed"
    BOUND = "bound"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The devices of one pod, as a mask."""

    mask: int
    state: AssignmentState


@dataclass(frozen=True, slots=True)
class Claim:
    """Devices kept for a nominated pod."""

    uid: str
    priority: int
    mask: int


@dataclass(slots=True)
class Account:
    """The account of one resource of a node.

    `assignments` by owner: a pod's uid, or uid@node for a hold of a pod that is not on this node as
    far as the API server shows. `unhealthy` are the devices that the node reports as such, `free`
    the healthy ones without an owner. `devices_unknown` counts, by uid, the devices that are not
    known by name (0: nor is their number); it is empty where devices may be planned. `contested`
    are the devices of a pod's plan that others have. `removed` are, by uid, ids of devices that the
    node no longer has. `given` is, by uid, what each container of a planned pod got, where that is
    not as planned.
    """

    assignments: dict[str, Assignment] = field(default_factory=dict[str, Assignment])
    unhealthy: int = 0
    free: int = 0
    devices_unknown: dict[str, int] = field(default_factory=dict[str, int])
    contested: dict[str, int] = field(default_factory=dict[str, int])
    removed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    given: dict[str, tuple[ContainerPlan, ...]] = field(
        default_factory=dict[str, tuple[ContainerPlan, ...]]
    )
    claims: tuple[Claim, ...] = ()

    @property
    def claimed(self) -> int:
        """The mask of all that is kept for nominated pods, also while claims are being made."""
        mask = 0
        for one in self.assignments.values():
            if one.state is AssignmentState.CLAIMED:
                mask |= one.mask
        return mask

    def has_gained(self, before: Account, free_before: int) -> bool:
        """Whether a pod may have a device that it might not; a claim is free for its own pod."""
        had = {claim.uid: claim.mask for claim in before.claims}
        gained = self.free & ~free_before
        for claim in self.claims:
            gained |= claim.mask & ~(free_before | had.get(claim.uid, 0))
        return gained != 0

    def free_for(
        self, request: PodRequest, *, is_assumed: bool, siblings: Collection[str] = ()
    ) -> int:
        """The mask of what a pod may have, with what its siblings claim.

        `is_assumed`: its own devices are not yet bound.
        """
        free = self.free
        for one in self.claims:
            is_own = one.uid == request.uid or one.uid in siblings
            if is_own or one.priority < request.priority:
                free |= one.mask
        own = self.assignments.get(request.uid)
        if own is not None and is_assumed:
            free |= own.mask & ~self.unhealthy
        return free


def make_account(
    node: NodeRecord,
    served: NodeResource,
    pods: Iterable[PodRecord],
    nominations: Iterable[Nomination],
    choose: Callable[[Account, PodRequest], int],
) -> Account:
    """Make the account of a resource of a node from the pods there; O(devices + pods + holds).

    `choose` gives the mask of the set that a nominated pod would get of what is `free` in the
    account so far, 0 for none. No nominated pod is among `pods`.
    """
    reported: dict[str, list[_Named]] = {}
    for hold in node.report.holds:
        reported.setdefault(hold.uid, []).append(hold)
    lacking = {one.uid for one in node.report.missing if one.resource == served.name}
    known = [
        _devices_of(served, pod, reported.pop(pod.uid, ()), is_lacking=pod.uid in lacking)
        for pod in sorted(pods, key=_NUMBER)
    ]
    account = Account({}, served.unhealthy, devices_unknown={}, contested={}, removed={}, given={})
    taken = _hold(account, served, known, reported, node.name)
    taken = _plan(account, known, taken)
    account.free = (1 << len(served.ids)) - 1 & ~taken & ~served.unhealthy
    _count(account, known)
    _claim(account, nominations, choose, leaving=_leaving(account, known))
    return account


def open_accounts(
    before: Sequence[NodeResource],
    accounts: Sequence[Account],
    resources: Sequence[NodeResource],
) -> tuple[Sequence[Account], int]:
    """The accounts of a node's resources until they are made, and how many end or begin.

    Those of resources with the same devices as before are kept; elsewhere all devices are free.
    """
    kept = {
        old.name: account
        for old, account in zip(before, accounts, strict=True)
        if any(one.name == old.name and one.ids == old.ids for one in resources)
    }
    opened = [kept.get(one.name) or Account(free=(1 << len(one.ids)) - 1) for one in resources]
    return opened, len(before) + len(resources) - 2 * len(kept)


_NUMBER: Callable[[PodRecord], int] = attrgetter("number")

_Named: TypeAlias = "ContainerDevices | DeviceHold"
"""Both name a container, a resource and ids."""


@dataclass(frozen=True, slots=True)
class _PodDevices:
    """What one pod has by its own facts. Masks `held` and `planned` are disjoint.

    `n_missing` devices are not known by name; `is_request_unknown`: nor is their number. `removed`
    are ids that the node no longer has.
    """

    pod: PodRecord
    held: int
    planned: int
    n_missing: int
    is_request_unknown: bool = False
    removed: tuple[str, ...] = ()
    given: tuple[ContainerPlan, ...] = ()

    @property
    def state(self) -> AssignmentState:
        if self.held:
            return AssignmentState.HELD
        is_assumed = self.pod.stage is PodStage.ASSUMED
        return AssignmentState.ASSUMED if is_assumed else AssignmentState.BOUND


def _devices_of(
    served: NodeResource, pod: PodRecord, reported: Sequence[_Named], *, is_lacking: bool
) -> _PodDevices:
    plan, body = pod.node_plan, pod.body
    # A pod requests one resource, so its first container shows which.
    if plan is not None and plan.containers and plan.containers[0].resource != served.name:
        plan = None if served.positions.keys().isdisjoint(plan.ids) else plan
    real = {} if body is None else _by_container(served, body.devices)
    reported_ids: list[str] = []
    if reported:
        by_report = _by_container(served, reported)
        real |= by_report
        reported_ids = [one for ids in by_report.values() for one in ids]
    is_request_unknown = body is not None and body.is_request_unknown
    if plan is not None and not real:
        planned = mask_of(plan.ids, served.positions)
        n_unknown = len(plan.ids) - planned.bit_count()
        removed = _removed(served, plan.ids) if n_unknown else ()
        return _PodDevices(pod, 0, planned, n_unknown - len(removed), removed=removed)
    real_ids = {one for ids in real.values() for one in ids}
    held = mask_of(real_ids, served.positions)
    if plan is None:
        removed = _removed(served, reported_ids)
        size = 0 if body is None or is_lacking else body.size(served.name)
        n_missing = max(0, size - held.bit_count() - len(removed))
        return _PodDevices(pod, held, 0, n_missing, is_request_unknown and not is_lacking, removed)
    as_planned = {
        one for container in plan.containers if container.name not in real for one in container.ids
    }
    planned = mask_of(as_planned, served.positions) & ~held
    removed = tuple(
        one for one in _removed(served, (*plan.ids, *reported_ids)) if one in real_ids | as_planned
    )
    n_missing = len(real_ids | as_planned) - (held | planned).bit_count() - len(removed)
    return _PodDevices(
        pod, held, planned, n_missing, removed=removed, given=_given(served, plan, real)
    )


def _removed(served: NodeResource, ids: Iterable[str]) -> tuple[str, ...]:
    """Which ids the node had and no longer has, each once; none where devices have no names."""
    if served.machine is None:
        return ()
    return tuple(one for one in dict.fromkeys(ids) if one not in served.positions)


def _by_container(served: NodeResource, named: Iterable[_Named]) -> dict[str, tuple[str, ...]]:
    """Ids by container, of this resource or known as its devices; device order first."""
    found: dict[str, tuple[str, ...]] = {}
    for one in named:
        if one.resource == served.name or not served.positions.keys().isdisjoint(one.ids):
            found[one.container] = found.get(one.container, ()) + one.ids
    return found


def _given(
    served: NodeResource, plan: Plan, real: Mapping[str, tuple[str, ...]]
) -> tuple[ContainerPlan, ...]:
    """What each container got, if that is not as planned; else nothing."""
    planned = {one.name: one for one in plan.containers}
    if all(name in planned and set(planned[name].ids) == set(ids) for name, ids in real.items()):
        return ()
    last = len(served.ids)
    got = {
        name: tuple(sorted(ids, key=lambda one: served.positions.get(one, last)))
        for name, ids in real.items()
    }
    names = dict.fromkeys((*planned, *got))
    return tuple(
        ContainerPlan(
            name,
            planned[name].resource if name in planned else served.name,
            got[name] if name in got else planned[name].ids,
        )
        for name in names
    )


def _hold(
    account: Account,
    served: NodeResource,
    known: Sequence[_PodDevices],
    strays: Mapping[str, Sequence[_Named]],
    node: str,
) -> int:
    """Rule 1; returns the mask of what is taken."""
    taken = 0
    for one in known:
        if one.held:
            taken |= _assign(account, one, one.held, taken)
    for uid, named in strays.items():
        mask = mask_of((one for hold in named for one in hold.ids), served.positions) & ~taken
        if mask:
            account.assignments[f"{uid}@{node}"] = Assignment(mask, AssignmentState.HELD)
            taken |= mask
    return taken


def _plan(account: Account, known: Sequence[_PodDevices], taken: int) -> int:
    """Rule 2; returns the mask of what is taken."""
    for one in known:
        if one.planned:
            taken |= _assign(account, one, one.planned, taken)
        if one.removed:
            account.removed[one.pod.uid] = one.removed
        if one.given:
            account.given[one.pod.uid] = one.given
    return taken


def _count(account: Account, known: Sequence[_PodDevices]) -> None:
    """Rule 3."""
    for one in known:
        if one.n_missing or one.is_request_unknown:
            account.devices_unknown[one.pod.uid] = one.n_missing
            mask = _lowest(account.free, one.n_missing)
            account.free &= ~mask
            _assign(account, one, mask, 0)


def _claim(
    account: Account,
    nominations: Iterable[Nomination],
    choose: Callable[[Account, PodRequest], int],
    *,
    leaving: int,
) -> None:
    """Rule 4; `leaving` is the mask of what pods under deletion have."""
    claims: list[Claim] = []
    for one in sorted(nominations, key=lambda one: (-one.request.priority, one.number)):
        uid = one.request.uid
        mask = choose(account, one.request)
        if not mask and leaving:
            whole = choose(replace(account, free=account.free | leaving), one.request)
            mask, leaving = whole & account.free, leaving & ~whole
        if mask:
            account.assignments[uid] = Assignment(mask, AssignmentState.CLAIMED)
            account.free &= ~mask
            claims.append(Claim(uid, one.request.priority, mask))
    account.claims = tuple(claims)


def _leaving(account: Account, known: Iterable[_PodDevices]) -> int:
    """The mask of the healthy devices of pods under deletion."""
    mask = 0
    for one in known:
        if one.pod.deletion_grace_s is not None and one.pod.uid in account.assignments:
            mask |= account.assignments[one.pod.uid].mask
    return mask & ~account.unhealthy


def _assign(account: Account, devices: _PodDevices, mask: int, taken: int) -> int:
    """Give a pod what is not taken of a mask, beside what it has; returns that."""
    uid, mine, lost = devices.pod.uid, mask & ~taken, mask & taken
    earlier = account.assignments.get(uid)
    whole = mine if earlier is None else mine | earlier.mask
    if whole:
        account.assignments[uid] = Assignment(whole, devices.state)
    if lost:
        account.contested[uid] = account.contested.get(uid, 0) | lost
    return mine


def _lowest(mask: int, count: int) -> int:
    """The lowest bits of a mask, at most so many."""
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask & ~rest
