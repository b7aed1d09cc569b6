"""Whose container does the kubelet ask for?

What it answers: for a request that names neither pod nor container, which container it is for, how
sure that is, and what was planned for it. It must never choose a device
(`plugin.allocation.preferred_allocation`), nor say `Identified` on a likelihood.

What the kubelet does (1.36.3, pkg/kubelet):

- It admits pods strictly one after another, and a pod is in its own list before its admission
  begins (kubelet.go, `HandlePodAdditions`). So a list that is read while the kubelet waits for our
  answer holds the pod under admission and none that comes later.
- The list's status is the API server's, and the loop that would renew it is the one that waits for
  us. So pods admitted moments ago look unstarted, and pods *rejected* moments ago look as if they
  waited still, for a whole burst. PodResources knows better: it lists active pods alone (1.34 on;
  also 1.31.14, 1.32.13, 1.33.13), and a rejected pod is inactive at once (`rejectPod`).
- Every device that is given away passes our Allocate, also those that are only handed on.
- A container of a *running* pod asks anew where the kubelet knows no devices of it
  (devicemanager/manager.go, `GetDeviceRunContainerOptions`): one that was started before the
  resource was registered, and starts again.

Two kinds of pods can therefore ask: those *ahead*, which have not started, and those *overdue*,
which have started (or were in the kubelet's list before it knew the resource) and lack devices. A
pod is passed over where it ended, was refused by us while ahead (a running one tries again), is not
active, asks for another number, or where the request contradicts what it has: its own devices would
not be available, and what its init containers hand on must be included.

On a fresh list (`NodeView.is_fresh`) the asker is always among those that are left. One left: that
one. Several: with `active` known, the pod ahead, since only one is under admission at a time;
otherwise `Ambiguous`. Where we gave devices to somebody unknown, that pod may be further on than it
seems: then all its later containers are candidates too. (An overdue pod whose container starts
again at the very moment of another pod's admission is not told apart; the report that follows says
who got what.)

On a cached list nothing of the request tells an old pod from one that came since, so only one case
is certain: *the admission goes on*. The last devices that we gave went to a pod ahead, the request
is what its next container asks, and the pod is known to be alive, because

- the request must include what its init containers hand on; or
- a device that it keeps is missing among the available ones, though it was never unwell.

A pod that is alive and lacks devices is under admission, and nobody else is. Both signs need a
kubelet that shows all that is free and takes nothing without asking (`NodeView.decides_alone`), and
no overdue pod may be waiting for as many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plugin.pods import (
    HoldingBook,
    Turn,
    is_over,
    next_turn,
    planned_ids,
    reserved_ids,
    turns_again,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.pods import Holding, NodePod, PodContainer

__all__ = [
    "Ambiguous",
    "Ask",
    "Identified",
    "Identity",
    "Nobody",
    "NodeView",
    "identify",
    "reserved_for_others",
]


@dataclass(frozen=True, slots=True)
class Ask:
    """What the kubelet asks for one container: `size` of `available`, with all of `must_include`.

    An Allocate that no question came before (`given`) is one in which everything is fixed.
    """

    resource: str
    available: frozenset[str]
    must_include: frozenset[str]
    size: int

    @classmethod
    def given(cls, resource: str, ids: Iterable[str]) -> Ask:
        """The question behind an Allocate of these ids."""
        every = frozenset(ids)
        return cls(resource, every, every, len(every))

    @property
    def is_given(self) -> bool:
        """Whether nothing is left to choose; the kubelet never asks then (`devicesToAllocate`)."""
        return len(self.must_include) >= self.size


@dataclass(frozen=True, slots=True)
class NodeView:
    """What is known of the node at the moment of a request.

    `pods` is the kubelet's list, read since it took our registration; `is_fresh` where it was read
    since the request came. `resources` are those that we serve.

    `holdings` come from PodResources or the kubelet's checkpoint; those without a uid were read
    after `pods`. `grants` are the answers to Allocate since the registration, oldest first; uid is
    None where nobody knew whose they are. `refused` are uids of pods that got an error from us.
    `settled` are uids of pods that the kubelet listed before we first told it of devices.

    `active` names (namespace, name) what PodResources lists, read since the request came; None
    where that was not asked, or on a kubelet that lists ended pods too. `decides_alone`: the
    kubelet may take devices without a question, since they were listed with their NUMA node, or we
    do not offer the preferred allocation. `steady` are the ids that were listed as healthy ever
    since the registration.
    """

    node: str
    resources: frozenset[str]
    pods: tuple[NodePod, ...]
    is_fresh: bool
    holdings: tuple[Holding, ...] = ()
    grants: tuple[Holding, ...] = ()
    refused: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    active: frozenset[tuple[str, str]] | None = None
    decides_alone: bool = False
    steady: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Identified:
    """The container that asks. `planned` is empty where it has no plan for this node."""

    pod: NodePod
    container: PodContainer
    planned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """It is one of these; those whose plan can be had come first, then by namespace and name."""

    candidates: tuple[Identified, ...]


@dataclass(frozen=True, slots=True)
class Nobody:
    """It cannot be said who asks; `reason` is for people."""

    reason: str


Identity = Identified | Ambiguous | Nobody

_MAY_BE_OLD = "the pod list may be older than the pod that asks"
_NO_CANDIDATE = "no pod of this node is known to wait for these devices"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Pods that lack devices, by kind."""

    ahead: tuple[Turn, ...]
    overdue: tuple[Turn, ...]


def identify(ask: Ask, view: NodeView) -> Identity:
    """Who asks. O(pods x containers); each plan's text is read once."""
    waiting = _waiting(view)
    if not view.is_fresh:
        turn = _going_on(ask, view, waiting)
        return Nobody(_MAY_BE_OLD) if turn is None else _identified(turn, ask, view)
    ahead = [turn for turn in waiting.ahead if _fits(ask, turn, view)]
    overdue = [turn for turn in waiting.overdue if _fits_again(ask, turn, view)]
    is_one_ahead = view.active is not None and len(waiting.ahead) == 1
    has_strays = _has_strays(ask, view)
    if view.active is not None and not has_strays:
        candidates = ahead or overdue
    else:
        further = _further(ask, waiting.ahead[0]) if is_one_ahead else []
        candidates = ahead + further + overdue
    if not candidates:
        return Nobody(_NO_CANDIDATE)
    if len(candidates) == 1 and (is_one_ahead or not has_strays):
        return _identified(candidates[0], ask, view)
    found = [_identified(turn, ask, view) for turn in candidates]
    return Ambiguous(tuple(sorted(found, key=lambda one: _likelihood(one, ask))))


def reserved_for_others(identity: Identity, view: NodeView) -> frozenset[str]:
    """Devices planned for containers that wait on this node, other than the one that asks."""
    asker = None
    if isinstance(identity, Identified):
        asker = (identity.pod.uid, identity.container)
    return reserved_ids(_waiting(view).ahead, node=view.node, asker=asker)


def _waiting(view: NodeView) -> _Waiting:
    book = HoldingBook((*view.holdings, *view.grants))
    ahead: list[Turn] = []
    overdue: list[Turn] = []
    for pod in view.pods:
        is_active = view.active is None or (pod.namespace, pod.name) in view.active
        if is_over(pod) or not is_active:
            continue
        if pod.is_started or pod.uid in view.settled:
            overdue.extend(turns_again(pod, book.of(pod), view.resources))
        elif pod.uid not in view.refused:
            turn = next_turn(pod, book.of(pod), view.resources)
            ahead += [] if turn is None else [turn]
    return _Waiting(tuple(ahead), tuple(overdue))


def _fits(ask: Ask, turn: Turn, view: NodeView) -> bool:
    """Whether a request can be what a container asks whose pod is being admitted."""
    handed, must = turn.handed_on(ask.resource), ask.must_include
    if turn.lacks.get(ask.resource) != ask.size or not turn.kept.isdisjoint(ask.available):
        return False
    if len(handed) >= ask.size:
        return ask.is_given and must <= handed
    # Devices aligned to a NUMA node are fixed before we are asked, beside those handed on.
    return handed <= must if view.decides_alone or ask.is_given else handed == must


def _fits_again(ask: Ask, turn: Turn, view: NodeView) -> bool:
    """Whether a request can be what a container asks that starts again."""
    if turn.lacks.get(ask.resource) != ask.size or not turn.kept.isdisjoint(ask.available):
        return False
    return view.decides_alone or ask.must_include <= turn.handed_on(ask.resource)


def _has_strays(ask: Ask, view: NodeView) -> bool:
    """Whether we gave devices to nobody known, and nothing names them since.

    An init container of the pod that asks may have them, so that it is further on than it seems.
    """
    owners = {one: grant.uid for grant in view.grants for one in grant.ids}
    named = {one for holding in view.holdings for one in holding.ids}
    free = ask.available - ask.must_include
    return any(uid is None and one not in named | free for one, uid in owners.items())


def _further(ask: Ask, turn: Turn) -> list[Turn]:
    """The containers after this one that ask for as many."""
    containers = turn.pod.containers
    return [
        replace(turn, container=one)
        for one in containers[containers.index(turn.container) + 1 :]
        if one.devices.get(ask.resource) == ask.size
    ]


def _going_on(ask: Ask, view: NodeView, waiting: _Waiting) -> Turn | None:
    """The pod whose admission goes on, if that is certain."""
    is_disturbed = any(_fits_again(ask, turn, view) for turn in waiting.overdue)
    if view.decides_alone or is_disturbed or not view.grants:
        return None
    last = view.grants[-1].uid
    turns = [turn for turn in waiting.ahead if turn.pod.uid == last and _fits(ask, turn, view)]
    return turns[0] if turns and _is_alive(turns[0], ask, view) else None


def _is_alive(turn: Turn, ask: Ask, view: NodeView) -> bool:
    """Whether the request shows that the pod which got devices last still has them."""
    if ask.must_include:
        return True  # handed on by its own init containers: a later pod's would be granted later
    given = {one for grant in view.grants if grant.resource == ask.resource for one in grant.ids}
    return not (turn.kept & given).isdisjoint(view.steady - ask.available)


def _identified(turn: Turn, ask: Ask, view: NodeView) -> Identified:
    name = turn.container.name
    planned = planned_ids(turn.pod, name, resource=ask.resource, node=view.node)
    return Identified(turn.pod, turn.container, planned)


def _likelihood(one: Identified, ask: Ask) -> tuple[bool, str, str, str]:
    can_be_had = bool(one.planned) and ask.must_include <= set(one.planned) <= ask.available
    return (not can_be_had, one.pod.namespace, one.pod.name, one.pod.uid)
