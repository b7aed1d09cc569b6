"""Finds the container that a kubelet's request is for.

A request names neither pod nor container. `Identified` never rests on a likelihood.

What the kubelet does (1.36.3, pkg/kubelet):

- It admits pods strictly one after another, and a pod is in its own list before its admission
  begins (kubelet.go, `HandlePodAdditions`). So a list that is read while the kubelet waits for our
  answer holds the pod under admission and none that comes later.
- The list's status is the API server's, and the loop that would renew it is the one that waits for
  us. So pods admitted moments ago look unstarted, and pods *rejected* moments ago look as if they
  waited still, for a whole burst. PodResources knows better: it lists active pods alone (1.34 on;
  also 1.31.14, 1.32.13, 1.33.13), and a rejected pod is inactive at once (`rejectPod`).
- Every device that is given away passes our Allocate, also those that are only handed on.
- A container of a *running* pod causes a request again where the kubelet knows no devices of it
  (devicemanager/manager.go, `GetDeviceRunContainerOptions`): one that was started before the
  resource was registered, and restarts.

Two kinds of pods can therefore be the requester: those *ahead*, which have not started, and those
*overdue*, which have started (or were in the kubelet's list before it knew the resource) and lack
devices. A pod is skipped where it ended, was refused by us while ahead (a running one tries again),
is not active, requests another number, or where the request contradicts what it has: its own
devices would not be available, and what its init containers hand on must be included.

On a fresh list (`AdmissionView.is_fresh`) the requester is always among the remaining pods. One
remains: that one. Several: with `active` known, the pod ahead, since only one is under admission at
a time; otherwise `Ambiguous`. Where we gave devices to an unknown requester, that pod may be
further on than it seems: then all its later containers are candidates too. (An overdue pod whose
container restarts at the very moment of another pod's admission cannot be distinguished; the report
that follows says which pod got what.)

On a cached list nothing in the request distinguishes an old pod from a newer one, so only one case
is certain: *the admission continues*. The last grant went to a pod ahead, the request matches its
next container, and the pod is known to be alive, because

- the request must include what its init containers hand on; or
- a device that it keeps is missing among the available ones, though it was never unhealthy.

A pod that is alive and lacks devices is under admission, and no other pod is. Both signs need a
kubelet that lists every free device and takes none without a request
(`AdmissionView.kubelet_decides`), and no overdue pod may lack as many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from plugin.pods import (
    HoldingsByPod,
    PendingContainer,
    next_pending,
    pending_restarts,
    planned_ids,
    reserved_ids,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from plugin.pods import HeldDevices, NodePod, PodContainer

__all__ = [
    "AdmissionView",
    "Ambiguous",
    "DeviceRequest",
    "Identified",
    "Requester",
    "UnknownRequester",
    "candidates_of",
    "identify",
    "reserved_for_others",
]


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A request for one container: `size` of `available`, with all of `must_include`.

    In an Allocate without a preceding GetPreferredAllocation everything is fixed (`fixed`).
    """

    resource: str
    available: frozenset[str]
    must_include: frozenset[str]
    size: int

    @classmethod
    def fixed(cls, resource: str, ids: Iterable[str]) -> DeviceRequest:
        """The request that an Allocate of these ids amounts to."""
        every = frozenset(ids)
        return cls(resource, every, every, len(every))

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to choose: the kubelet then calls Allocate alone.

        (devicemanager/manager.go, `devicesToAllocate`.)
        """
        return len(self.must_include) >= self.size


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Pods that lack devices, by kind."""

    ahead: tuple[PendingContainer, ...]
    overdue: tuple[PendingContainer, ...]


@dataclass(frozen=True)
class AdmissionView:
    """What is known of the node at the moment of a request.

    `pods` is the kubelet's list, read since it took our registration; `is_fresh` where it was read
    since the request came. `resources` are those that we serve.

    `holdings` come from PodResources or the kubelet's checkpoint; those without a uid were read
    after `pods`. `grants` are the answers to Allocate since the registration, oldest first; uid is
    None for an unknown requester. `refused` are uids of pods that got an error from us.
    `preexisting` are uids of pods that the kubelet listed before it learned of the devices.

    `active` names (namespace, name) what PodResources lists, read since the request came; None
    where it was not read, or on a kubelet that lists ended pods too. `kubelet_decides`: the kubelet
    may take devices without GetPreferredAllocation, since they were listed with their NUMA node.
    `always_healthy` are the ids that were listed as healthy ever since the registration.
    """

    node: str
    resources: Collection[str]
    pods: tuple[NodePod, ...]
    is_fresh: bool
    holdings: tuple[HeldDevices, ...] = ()
    grants: tuple[HeldDevices, ...] = ()
    refused: frozenset[str] = frozenset()
    preexisting: frozenset[str] = frozenset()
    active: frozenset[tuple[str, str]] | None = None
    kubelet_decides: bool = False
    always_healthy: frozenset[str] = frozenset()

    @cached_property
    def waiting(self) -> WaitingPods:
        """The pods that lack devices."""
        by_pod = HoldingsByPod((*self.holdings, *self.grants))
        ahead: list[PendingContainer] = []
        overdue: list[PendingContainer] = []
        for pod in self.pods:
            is_active = self.active is None or (pod.namespace, pod.name) in self.active
            if pod.has_ended or not is_active:
                continue
            if pod.is_started or pod.uid in self.preexisting:
                overdue.extend(pending_restarts(pod, by_pod.of(pod), self.resources))
            elif pod.uid not in self.refused:
                pending = next_pending(pod, by_pod.of(pod), self.resources)
                ahead += [] if pending is None else [pending]
        return WaitingPods(tuple(ahead), tuple(overdue))


@dataclass(frozen=True, slots=True)
class Identified:
    """The requesting container. `planned` is empty where it has no plan for this node."""

    pod: NodePod
    container: PodContainer
    planned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """One of these; those with an available plan come first, then by namespace and name."""

    candidates: tuple[Identified, ...]


@dataclass(frozen=True, slots=True)
class UnknownRequester:
    """The requester cannot be found; `reason` says why."""

    reason: str


Requester = Identified | Ambiguous | UnknownRequester


def candidates_of(requester: Requester) -> tuple[Identified, ...]:
    """The containers that may be the requester."""
    if isinstance(requester, Identified):
        return (requester,)
    return requester.candidates if isinstance(requester, Ambiguous) else ()


_MAY_BE_OLD = "the pod list may be older than the requesting pod"
_NO_CANDIDATE = "no pending pod of this node requests these devices"


def identify(request: DeviceRequest, view: AdmissionView) -> Requester:
    """Find the requester. O(pods x containers); each plan is parsed once."""
    if not view.is_fresh:
        pending = _admission_in_progress(request, view)
        if pending is None:
            return UnknownRequester(_MAY_BE_OLD)
        return _identified(pending, request, view)
    waiting = view.waiting
    ahead = [pending for pending in waiting.ahead if _fits(request, pending, view)]
    overdue = [pending for pending in waiting.overdue if _fits_again(request, pending, view)]
    is_one_ahead = view.active is not None and len(waiting.ahead) == 1
    has_unknown_grants = _has_unknown_grants(request, view)
    if view.active is not None and not has_unknown_grants:
        candidates = ahead or overdue
    else:
        later = _later_containers(request, waiting.ahead[0]) if is_one_ahead else []
        candidates = ahead + later + overdue
    if not candidates:
        return UnknownRequester(_NO_CANDIDATE)
    if len(candidates) == 1 and (is_one_ahead or not has_unknown_grants):
        return _identified(candidates[0], request, view)
    found = [_identified(pending, request, view) for pending in candidates]
    return Ambiguous(tuple(sorted(found, key=lambda one: _likelihood(one, request))))


def reserved_for_others(identity: Requester, view: AdmissionView) -> frozenset[str]:
    """Devices planned for pending containers of this node, other than the requester's."""
    own = None
    if isinstance(identity, Identified):
        own = (identity.pod.uid, identity.container)
    return reserved_ids(view.waiting.ahead, node=view.node, own=own)


def _can_be(request: DeviceRequest, pending: PendingContainer) -> bool:
    """Whether a container lacks as many, and its pod has none of the available devices."""
    is_size = pending.lacks.get(request.resource) == request.size
    return is_size and pending.kept.isdisjoint(request.available)


def _fits(request: DeviceRequest, pending: PendingContainer, view: AdmissionView) -> bool:
    """Whether a request can be for a container whose pod is being admitted."""
    handed, must = pending.handed_on(request.resource), request.must_include
    if not _can_be(request, pending):
        return False
    if len(handed) >= request.size:
        return request.is_fixed and must <= handed
    # Devices aligned to a NUMA node are fixed before the request, beside those handed on.
    return handed <= must if view.kubelet_decides or request.is_fixed else handed == must


def _fits_again(request: DeviceRequest, pending: PendingContainer, view: AdmissionView) -> bool:
    """Whether a request can be for a container that restarts."""
    if not _can_be(request, pending):
        return False
    return view.kubelet_decides or request.must_include <= pending.handed_on(request.resource)


def _has_unknown_grants(request: DeviceRequest, view: AdmissionView) -> bool:
    """Whether an unknown requester was granted devices that no holding names since.

    An init container of the requesting pod may hold them, so that it is further on than it seems.
    """
    owners = {one: grant.uid for grant in view.grants for one in grant.ids}
    named = {one for holding in view.holdings for one in holding.ids}
    free = request.available - request.must_include
    return any(uid is None and one not in named | free for one, uid in owners.items())


def _later_containers(request: DeviceRequest, pending: PendingContainer) -> list[PendingContainer]:
    """The later containers of the pod that request as many."""
    containers = pending.pod.containers
    return [
        replace(pending, container=one)
        for one in containers[containers.index(pending.container) + 1 :]
        if one.devices.get(request.resource) == request.size
    ]


def _admission_in_progress(request: DeviceRequest, view: AdmissionView) -> PendingContainer | None:
    """The pod whose admission continues, if that is certain."""
    if view.kubelet_decides or not view.grants:
        return None
    if any(_fits_again(request, pending, view) for pending in view.waiting.overdue):
        return None
    last = view.grants[-1].uid
    for pending in view.waiting.ahead:
        if pending.pod.uid == last and _fits(request, pending, view):
            return pending if _is_alive(pending, request, view) else None
    return None


def _is_alive(pending: PendingContainer, request: DeviceRequest, view: AdmissionView) -> bool:
    """Whether the request shows that the pod which got devices last still has them."""
    if request.must_include:
        return True  # handed on by its own init containers: a later pod's would be granted later
    given = {
        one for grant in view.grants if grant.resource == request.resource for one in grant.ids
    }
    return not (pending.kept & given).isdisjoint(view.always_healthy - request.available)


def _identified(
    pending: PendingContainer, request: DeviceRequest, view: AdmissionView
) -> Identified:
    name = pending.container.name
    planned = planned_ids(pending.pod, name, resource=request.resource, node=view.node)
    return Identified(pending.pod, pending.container, planned)


def _likelihood(one: Identified, request: DeviceRequest) -> tuple[bool, str, str, str]:
    can_be_had = bool(one.planned) and request.must_include <= set(one.planned) <= request.available
    return (not can_be_had, one.pod.namespace, one.pod.name, one.pod.uid)
