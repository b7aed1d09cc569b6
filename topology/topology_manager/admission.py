"""Which GPUs each container of a pod gets where the kubelet's Topology Manager confines pods.

What it answers: as `topology.select.fit`, a set for every container or why not, but only sets that
the kubelet will really give: it confines every container, or the pod, to NUMA nodes of its own
choice (`topology.topology_manager.hints`), whatever was planned, and may refuse the pod for
good. Nothing here is called for policy `none`.

Method. The kubelet admits a pod container by container, init containers first; what one gets is
gone for the next, and moves the next one's hint. So a choice is replayed in that order, and only
one that the kubelet follows to the end is given. Tried in turn:

1. the pod's best sets of all that is free, chosen jointly (`topology.select.fit`);
2. the best sets inside what is open to its first container, chosen jointly: with scope `pod`, and
   wherever all containers find room on one set of NUMA nodes, these are the best of all;
3. container after container, each the best set in the room that the kubelet leaves it.

What is given up against the joint choice: in 3 an earlier container may take what a later one would
have used better, or, where the kubelet leaves a choice between several NUMA nodes, so many of one
that a later one is refused, though another choice had served both; the reason for such a pod is to
wait or to go elsewhere. And where an init container hands on more than the next one needs, the
kubelet takes any of them, so that from there on what was planned is one possibility of several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from topology.annotations import DEFAULT_POLICY, TopologyManagerPolicy, TopologyManagerScope
from topology.select import (
    ContainerRole,
    PodFit,
    Selected,
    Unfit,
    UnfitReason,
    fit_pod,
    join_sets,
    pod_size,
    select_set,
)
from topology.topology_manager.hints import allowed_sets, best_hint, is_admitted, numa_devices
from topology.value import gpus_of

if TYPE_CHECKING:
    from topology.annotations import PlacementPolicy
    from topology.select import ContainerRequest, Machine
    from topology.topology_manager.hints import AllowedSets, Hint, NumaDevices, TopologyManager

__all__ = ["Admission", "Kubelet", "begin_admission", "fit_admitted"]


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet of a node: how it aligns, and the healthy devices that no pod has.

    `idle` is all that it may give away; it knows of no claim.
    """

    manager: TopologyManager
    idle: int


@dataclass(frozen=True, slots=True)
class Admission:
    """Where the kubelet stands in admitting a pod.

    `free` is what it may still give away, `reusable` what earlier init containers hand on;
    `pod_hint` is the one hint of scope `pod`, None with scope `container`.
    """

    manager: TopologyManager
    numa: NumaDevices
    free: int
    reusable: int = 0
    pod_hint: Hint | None = None

    def room(self, size: int) -> AllowedSets | Unfit:
        """What is left to choose for the next container, or that the kubelet refuses it."""
        hint = self.pod_hint
        if hint is None:
            hint = best_hint(self.numa, free=self.free, reusable=self.reusable, size=size)
            if not is_admitted(self.manager.policy, hint):
                return _refusal(self.manager, self.numa, hint, size)
        return allowed_sets(hint, free=self.free, reusable=self.reusable, size=size)

    def after(self, role: ContainerRole, gpus: int) -> Admission:
        """Where the kubelet stands when that container has these."""
        is_handed_on = role is ContainerRole.INIT
        return replace(
            self,
            free=self.free & ~gpus,
            reusable=self.reusable | gpus if is_handed_on else self.reusable & ~gpus,
        )


def begin_admission(
    kubelet: Kubelet, numa: NumaDevices, requests: tuple[ContainerRequest, ...]
) -> Admission | Unfit:
    """The kubelet starts admitting a pod.

    With scope `pod` it may refuse it here (scope_pod.go; the pod's size is `PodLimits` of
    component-helpers v0.36.3, resource/helpers.go).
    """
    manager, idle = kubelet.manager, kubelet.idle
    if manager.scope is TopologyManagerScope.CONTAINER:
        return Admission(manager, numa, idle)
    size = pod_size(requests)
    hint = best_hint(numa, free=idle, size=size)
    if not is_admitted(manager.policy, hint):
        return _refusal(manager, numa, hint, size)
    return Admission(manager, numa, idle, pod_hint=hint)


def fit_admitted(
    machine: Machine,
    *,
    kubelet: Kubelet,
    available: int,
    requests: tuple[ContainerRequest, ...],
    policy: PlacementPolicy = DEFAULT_POLICY,
) -> PodFit | Unfit:
    """Choose a set for every container of a pod that the kubelet will give it, or say why not.

    `available` may be planned on; it lies within what the kubelet has idle. Raises as
    `topology.select.fit.fit_pod`.

    >>> from topology.select.fit import ContainerRequest
    >>> from topology.topology_manager.hints import TopologyManager
    >>> from topology.recordings import load_recording
    >>> from topology.select.selection import build_machine
    >>> machine = build_machine(load_recording("dgx-1-v100"))
    >>> single = TopologyManager(
    ...     TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.CONTAINER
    ... )
    >>> kubelet, requests = Kubelet(single, 0xFF), (ContainerRequest("train", 6),)
    >>> fit_admitted(machine, kubelet=kubelet, available=0xFF, requests=requests).detail
    'policy single-numa-node, scope container: 6 GPUs take NUMA nodes 0, 1, expected 1 of them'
    """
    return _fit(machine, kubelet, available, requests, policy)


@lru_cache(maxsize=1 << 14)
def _fit(
    machine: Machine,
    kubelet: Kubelet,
    available: int,
    requests: tuple[ContainerRequest, ...],
    policy: PlacementPolicy,
) -> PodFit | Unfit:
    joint = fit_pod(machine, available=available, requests=requests, policy=policy)
    if isinstance(joint, Unfit):
        return joint
    numa = numa_devices(machine.topology)
    begun = begin_admission(kubelet, numa, requests)
    if isinstance(begun, Unfit):
        return begun
    if _is_followed(begun, requests, joint):
        return joint
    first = begun.room(requests[0].size)
    if isinstance(first, Unfit):
        return first
    area = available & first.allowed
    if area != available and pod_size(requests) <= area.bit_count():
        inside = fit_pod(
            machine, available=area, beside=available & ~area, requests=requests, policy=policy
        )
        if isinstance(inside, PodFit) and _is_followed(begun, requests, inside):
            return inside
    return _one_by_one(machine, begun, available=available, requests=requests, policy=policy)


def _is_followed(admission: Admission, requests: tuple[ContainerRequest, ...], fit: PodFit) -> bool:
    """Whether the kubelet gives every container what is chosen for it."""
    sets = dict(fit.containers)
    for request in requests:
        room, gpus = admission.room(request.size), sets[request.name].mask
        if isinstance(room, Unfit) or not room.holds(gpus):
            return False
        admission = admission.after(request.role, gpus)
    return True


def _one_by_one(
    machine: Machine,
    admission: Admission,
    *,
    available: int,
    requests: tuple[ContainerRequest, ...],
    policy: PlacementPolicy,
) -> PodFit | Unfit:
    """Each container's best set in the room that those before it left, in the kubelet's order."""
    chosen: dict[str, Selected] = {}
    for request in requests:
        room = admission.room(request.size)
        if isinstance(room, Unfit):
            return room
        open_to = room.allowed & (available & admission.free | admission.reusable)
        found = select_set(
            machine,
            available=open_to,
            must_include=room.must & open_to,
            beside=available & admission.free & ~open_to,
            size=request.size,
            policy=policy,
        )
        if isinstance(found, Unfit) or not room.holds(found.mask):
            why = found.reason.value if isinstance(found, Unfit) else "some of them are claimed"
            detail = f"{request.size} GPUs of {gpus_of(room.allowed)}: {why}"
            return Unfit(UnfitReason.ALIGNMENT_APART, f"{_title(admission.manager)}: {detail}")
        chosen[request.name] = found
        admission = admission.after(request.role, found.mask)
    return join_sets(machine, available=available, requests=requests, chosen=chosen)


def _refusal(manager: TopologyManager, numa: NumaDevices, hint: Hint, size: int) -> Unfit:
    empty = best_hint(numa, free=numa.devices, size=size)
    is_possible = is_admitted(manager.policy, empty)
    reason = UnfitReason.ALIGNMENT_TAKEN if is_possible else UnfitReason.ALIGNMENT_NEVER
    n_least = 1 if manager.policy is TopologyManagerPolicy.SINGLE_NUMA_NODE else len(empty.nodes)
    taken = ", ".join(map(str, hint.nodes))
    detail = f"{size} GPUs take NUMA nodes {taken}, expected {n_least} of them"
    n_known = numa.devices.bit_count()
    if size > n_known:
        detail = f"{size} GPUs, but only of {n_known} the NUMA node is known"
    return Unfit(reason, f"{_title(manager)}: {detail}")


def _title(manager: TopologyManager) -> str:
    return f"policy {manager.policy.value}, scope {manager.scope.value}"
