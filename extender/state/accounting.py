"""Who has which devices of one node: from what is known to one account, by rule.

What it answers: for a node, its pods and its nominations, which devices each of them has, how sure
that is, and what cannot be accounted for. A function of its arguments, so that the same devices are
free in whatever order things became known, and after a restart. It changes nothing:
`extender.state.cluster_state` brings the ledger in line with it.

The rules, each before the next:

1. What really is, wins: devices that the node's report or a pod's status names are *held*, planned
   or not, also by pods that nobody else has told of.
2. A plan has its devices, bound or under way, where nobody holds them. Of two plans that name one
   device the pod met first has it; the other one is *contested* and keeps the rest.
3. A pod whose devices nobody can name is *unlocated*: it has as many as it asks for, any that are
   free; where they run out, none. A node with such a pod is count-only: the kubelet gave the pod
   devices, and nobody knows which. Not so a pod without a plan of which the node's report says that
   it runs without devices: what it has is in that report too, mostly nothing.
4. A nomination claims, of what is then free and healthy, the set that the core would choose: the
   highest priority first, then the pod met first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from extender.state.node_record import mask_of
from extender.state.pod_record import PodStage
from topology.annotations import ContainerPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from extender.protocol import PodRequest
    from extender.state.node_record import NodeRecord
    from extender.state.pod_record import PodRecord
    from kube.objects import ContainerDevices
    from topology.annotations import DeviceHold, Plan

__all__ = ["Account", "Claim", "Nomination", "Share", "Tenure", "make_account"]


class Tenure(Enum):
    """How a pod has its devices, as the ledger's states say it."""

    CLAIMED = "claimed"
    ASSUMED = "assumed"
    BOUND = "bound"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Share:
    """The devices of one pod, as a mask; `deadline_s` counts for ASSUMED."""

    mask: int
    tenure: Tenure
    deadline_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """Devices kept for a nominated pod."""

    uid: str
    priority: int
    mask: int


@dataclass(frozen=True, slots=True)
class Nomination:
    """A pending pod that is nominated to a node; `number` as a pod record's."""

    request: PodRequest
    node: str
    number: int


@dataclass(slots=True)
class Account:
    """The account of one node.

    `shares` by owner: a pod's uid, or uid@node for a hold of a pod that is not at home here. `free`
    are the healthy devices that nobody has. `unlocated` counts, by uid, the devices that nobody can
    name (0: not even their number is known); it is empty where the node may be planned on.
    `contested` are the devices of a pod's plan that others have. `given` says, by uid, what each
    container of a planned pod got, where that is not as planned.
    """

    shares: dict[str, Share] = field(default_factory=dict[str, Share])
    free: int = 0
    unlocated: dict[str, int] = field(default_factory=dict[str, int])
    contested: dict[str, int] = field(default_factory=dict[str, int])
    given: dict[str, tuple[ContainerPlan, ...]] = field(
        default_factory=dict[str, tuple[ContainerPlan, ...]]
    )
    claims: tuple[Claim, ...] = ()

    @property
    def claimed(self) -> int:
        """The mask of all that is kept for nominated pods, while claims are still made as well."""
        mask = 0
        for share in self.shares.values():
            if share.tenure is Tenure.CLAIMED:
                mask |= share.mask
        return mask

    def has_gained(self, before: Account | None, free_before: int) -> bool:
        """Whether a pod may have a device that it might not; a claim is free for its own pod."""
        had = {} if before is None else {claim.uid: claim.mask for claim in before.claims}
        gained = self.free & ~free_before
        for claim in self.claims:
            gained |= claim.mask & ~(free_before | had.get(claim.uid, 0))
        return gained != 0


def make_account(
    node: NodeRecord,
    pods: Iterable[PodRecord],
    nominations: Iterable[Nomination],
    choose: Callable[[Account, PodRequest], int],
) -> Account:
    """Settle who has what. `pods` are at home on the node; O(devices + pods + holds).

    `choose` gives the mask of the set that a nominated pod would get of what is `free` in the
    account so far, 0 for none. No nominated pod is among `pods`.
    """
    reported: dict[str, list[_Named]] = {}
    for hold in node.report.holds:
        reported.setdefault(hold.uid, []).append(hold)
    lacking = {one.uid for one in node.report.missing if one.resource == node.resource}
    wishes = [
        _wish(node, pod, reported.pop(pod.uid, ()), is_lacking=pod.uid in lacking)
        for pod in sorted(pods, key=_NUMBER)
    ]
    account = Account(shares={}, unlocated={}, contested={}, given={})
    taken = _hold(account, node, wishes, reported)
    taken = _plan(account, wishes, taken)
    account.free = (1 << len(node.ids)) - 1 & ~taken & ~node.unhealthy
    _count(account, wishes)
    _claim(account, nominations, choose)
    return account


_NUMBER: Callable[[PodRecord], int] = attrgetter("number")

_Named: TypeAlias = "ContainerDevices | DeviceHold"
"""Both name a container, a resource and ids."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one pod has by its own facts. Masks `held` and `planned` are disjoint.

    `n_missing` devices nobody can name; `is_opaque`: nor count.
    """

    pod: PodRecord
    held: int
    planned: int
    n_missing: int
    is_opaque: bool = False
    given: tuple[ContainerPlan, ...] = ()

    @property
    def tenure(self) -> Tenure:
        if self.held:
            return Tenure.HELD
        return Tenure.ASSUMED if self.pod.stage is PodStage.ASSUMED else Tenure.BOUND


def _wish(
    node: NodeRecord, pod: PodRecord, reported: Sequence[_Named], *, is_lacking: bool
) -> _Wish:
    plan, body = pod.home_plan, pod.body
    real = {} if body is None else _by_container(node, body.devices)
    if reported:
        real |= _by_container(node, reported)
    is_opaque = body is not None and body.is_opaque
    if plan is not None and not real:
        planned = mask_of(plan.ids, node.positions)
        return _Wish(pod, 0, planned, len(plan.ids) - planned.bit_count())
    real_ids = {one for ids in real.values() for one in ids}
    held = mask_of(real_ids, node.positions)
    if plan is None and is_lacking:
        return _Wish(pod, held, 0, 0)
    if plan is None:
        size = 0 if body is None else body.size(node.resource)
        return _Wish(pod, held, 0, max(0, size - held.bit_count()), is_opaque)
    as_planned = {
        one for container in plan.containers if container.name not in real for one in container.ids
    }
    planned = mask_of(as_planned, node.positions) & ~held
    n_known = (held | planned).bit_count()
    return _Wish(
        pod, held, planned, len(real_ids | as_planned) - n_known, given=_given(node, plan, real)
    )


def _by_container(node: NodeRecord, named: Iterable[_Named]) -> dict[str, tuple[str, ...]]:
    """Ids by container, of the node's resource or known as its devices; device order first."""
    found: dict[str, tuple[str, ...]] = {}
    for one in named:
        if one.resource == node.resource or not node.positions.keys().isdisjoint(one.ids):
            found[one.container] = found.get(one.container, ()) + one.ids
    return found


def _given(
    node: NodeRecord, plan: Plan, real: Mapping[str, tuple[str, ...]]
) -> tuple[ContainerPlan, ...]:
    """What each container got, if that is not as planned; else nothing."""
    planned = {one.name: one for one in plan.containers}
    if all(name in planned and set(planned[name].ids) == set(ids) for name, ids in real.items()):
        return ()
    last = len(node.ids)
    got = {
        name: tuple(sorted(ids, key=lambda one: node.positions.get(one, last)))
        for name, ids in real.items()
    }
    names = dict.fromkeys((*planned, *got))
    return tuple(
        ContainerPlan(
            name,
            planned[name].resource if name in planned else node.resource,
            got[name] if name in got else planned[name].ids,
        )
        for name in names
    )


def _hold(
    account: Account,
    node: NodeRecord,
    wishes: Sequence[_Wish],
    strays: Mapping[str, Sequence[_Named]],
) -> int:
    """Rule 1; returns the mask of what is taken."""
    taken = 0
    for wish in wishes:
        if wish.held:
            taken |= _give(account, wish, wish.held, taken)
    for uid, named in strays.items():
        mask = mask_of((one for hold in named for one in hold.ids), node.positions) & ~taken
        if mask:
            account.shares[f"{uid}@{node.name}"] = Share(mask, Tenure.HELD)
            taken |= mask
    return taken


def _plan(account: Account, wishes: Sequence[_Wish], taken: int) -> int:
    """Rule 2; returns the mask of what is taken."""
    for wish in wishes:
        if wish.planned:
            taken |= _give(account, wish, wish.planned, taken)
        if wish.given:
            account.given[wish.pod.uid] = wish.given
    return taken


def _count(account: Account, wishes: Sequence[_Wish]) -> None:
    """Rule 3."""
    for wish in wishes:
        if wish.n_missing or wish.is_opaque:
            account.unlocated[wish.pod.uid] = wish.n_missing
            mask = _lowest(account.free, wish.n_missing)
            account.free &= ~mask
            _give(account, wish, mask, 0)


def _claim(
    account: Account,
    nominations: Iterable[Nomination],
    choose: Callable[[Account, PodRequest], int],
) -> None:
    """Rule 4."""
    claims: list[Claim] = []
    for one in sorted(nominations, key=lambda one: (-one.request.priority, one.number)):
        uid = one.request.uid
        mask = choose(account, one.request)
        if mask:
            account.shares[uid] = Share(mask, Tenure.CLAIMED)
            account.free &= ~mask
            claims.append(Claim(uid, one.request.priority, mask))
    account.claims = tuple(claims)


def _give(account: Account, wish: _Wish, mask: int, taken: int) -> int:
    """Give a pod what is not taken of a mask, beside what it has; returns that."""
    uid, mine, lost = wish.pod.uid, mask & ~taken, mask & taken
    share = account.shares.get(uid)
    whole = mine if share is None else mine | share.mask
    if whole:
        account.shares[uid] = Share(whole, wish.tenure, wish.pod.deadline_s or 0.0)
    if lost:
        account.contested[uid] = account.contested.get(uid, 0) | lost
    return mine


def _lowest(mask: int, count: int) -> int:
    """The lowest bits of a mask, at most so many."""
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask & ~rest
