"""Answers GetPreferredAllocation and Allocate for one resource.

The steps: find the requesting container (`plugin.allocation.pod_matching`, from what is known, else
from the kubelet), choose devices (`plugin.allocation.preferred_allocation`), and give the container
access to them (the vendor's `DeviceAccess`). Each decision is made there, not here.

An Allocate is checked like a request in which everything is fixed: the kubelet may have taken other
devices than were preferred, or not have requested a preference. So no container of a pod that
requires something starts on less, none on a device that is known to be unhealthy, and none on one
that another pod holds and that the kubelet has lost count of (`plugin.kubelet.admission_gate`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from plugin.allocation import (
    AllocationRefusal,
    Ambiguous,
    DeviceRequest,
    Identified,
    UnknownRequester,
    choose_devices,
    identify,
)
from plugin.container import NoAccess
from plugin.deviceplugin import CallRefused, DevicePluginMethod
from plugin.kubelet import KubeletRead

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.allocation import AdmissionView, Allocation, NodeState, Requester
    from plugin.container import ContainerAccess
    from plugin.kubelet import KubeletView, StillHeld
    from plugin.pods import HeldDevices

__all__ = [
    "AllocationAnswer",
    "AllocatorEvent",
    "AllocatorTools",
    "Identification",
    "IdentifiedBy",
    "ResourceAllocator",
]


_LAST_HOLDER_S = 0.5
"""The part of an Allocate's time that is kept for the question whether the last holder of a device
still has it: a pod must not fail because finding out whose it is took all of it."""


class IdentifiedBy(Enum):
    """How the requesting container was found."""

    KNOWN = "known"
    """From what was known already."""
    LOOKUP = "lookup"
    """From the kubelet, read for this request."""
    AMBIGUOUS = "ambiguous"
    """Several containers remained after that."""
    UNMATCHED = "unmatched"
    """No container remained."""
    UNREACHABLE = "unreachable"
    """The kubelet could not be read."""


@dataclass(frozen=True, slots=True)
class Identification:
    """How the container of a request was found, and how long that took."""

    how: IdentifiedBy
    duration_s: float


@dataclass(frozen=True, slots=True)
class AllocationAnswer:
    """An answer to GetPreferredAllocation or Allocate about one container."""

    method: DevicePluginMethod
    request: DeviceRequest
    requester: Requester
    result: Allocation | CallRefused


AllocatorEvent = Identification | KubeletRead | AllocationAnswer


@dataclass(frozen=True, slots=True)
class AllocatorTools:
    """What all allocators of a node share.

    `emit` reports what happens, for logs and metrics; `on_allocated` is called after each container
    that was given devices. Both are called on the event loop and must not wait.
    """

    state: NodeState
    kubelet: KubeletView
    emit: Callable[[AllocatorEvent], None]
    on_allocated: Callable[[], None]


class ResourceAllocator:
    """The `plugin.deviceplugin.offer.Allocator` of one resource."""

    def __init__(self, resource: str, tools: AllocatorTools) -> None:
        self._resource = resource
        self._tools = tools

    async def preferred(
        self,
        available: tuple[str, ...],
        *,
        must_include: tuple[str, ...],
        size: int,
        until_s: float,
    ) -> tuple[str, ...] | CallRefused:
        """`size` of the available ids, with all of `must_include`."""
        state = self._tools.state
        request = DeviceRequest(self._resource, frozenset(available), frozenset(must_include), size)
        async with self._tools.kubelet.gate.call(until_s):
            # The kubelet has reserved aligned devices before it makes this call.
            requester, view = await self._identify(
                request, with_devices=not state.lists_numa_nodes, until_s=until_s
            )
            found = self._choose(request, requester, view)
            self._tools.emit(
                AllocationAnswer(DevicePluginMethod.PREFERRED, request, requester, found)
            )
            if isinstance(found, CallRefused):
                state.record_refusal(requester)
                return found
            state.expect_allocate(self._resource, found, requester)
            return found.ids

    async def allocate(
        self, containers: tuple[tuple[str, ...], ...], *, until_s: float
    ) -> tuple[ContainerAccess, ...] | CallRefused:
        """What each container gets with the ids that it was given."""
        answers: list[ContainerAccess] = []
        async with self._tools.kubelet.gate.call(until_s):
            for ids in containers:
                answer = await self._allocate(ids, until_s)
                if isinstance(answer, CallRefused):
                    return answer
                answers.append(answer)
        return tuple(answers)

    async def _allocate(
        self, ids: tuple[str, ...], until_s: float
    ) -> ContainerAccess | CallRefused:
        tools, state = self._tools, self._tools.state
        request = DeviceRequest.fixed(self._resource, ids)
        expected = state.expected(self._resource, ids)
        if expected is None:
            requester, view = await self._identify(
                request, with_devices=False, until_s=until_s - _LAST_HOLDER_S
            )
            found = self._choose(request, requester, view)
        else:
            requester = expected.requester
            found = expected.allocation or self._choose(
                request, requester, state.view(is_fresh=False)
            )
        access: ContainerAccess | CallRefused
        if isinstance(found, CallRefused):
            access = found
        else:
            access = await self._access(request, requester, until_s)
        result = access if isinstance(access, CallRefused) else found
        tools.emit(AllocationAnswer(DevicePluginMethod.ALLOCATE, request, requester, result))
        if isinstance(access, CallRefused):
            state.record_refusal(requester)
            return access
        state.record_grant(self._resource, ids, requester)
        tools.on_allocated()
        return access

    async def _identify(
        self, request: DeviceRequest, *, with_devices: bool, until_s: float
    ) -> tuple[Requester, AdmissionView]:
        """Find the requester: from what is known where that is certain, else from the kubelet.

        The view is the one in which it was found, or not.
        """
        tools, state = self._tools, self._tools.state
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        view = state.view(is_fresh=False)
        requester, how = identify(request, view), IdentifiedBy.KNOWN
        if not isinstance(requester, Identified):
            since = state.grants
            snapshot = await tools.kubelet.snapshot(with_devices=with_devices, until_s=until_s)
            state.see(snapshot, since=since)
            tools.emit(KubeletRead(snapshot.error))
            view = state.view(is_fresh=snapshot.pods is not None)
            if view.is_fresh:
                requester = identify(request, view)
                how = _HOW[type(requester)]
            else:
                requester, how = UnknownRequester(snapshot.error), IdentifiedBy.UNREACHABLE
        tools.emit(Identification(how, clock() - begun_s))
        return requester, view

    def _choose(
        self, request: DeviceRequest, requester: Requester, view: AdmissionView
    ) -> Allocation | CallRefused:
        supply = self._tools.state.supply(request, requester, view)
        found = choose_devices(request, requester, supply)
        return CallRefused(str(found)) if isinstance(found, AllocationRefusal) else found

    async def _access(
        self, request: DeviceRequest, requester: Requester, until_s: float
    ) -> ContainerAccess | CallRefused:
        """What gives access to all of the request, unless another pod still has some of it."""
        tools, state = self._tools, self._tools.state
        ids = request.must_include
        others = state.held_by_others(self._resource, ids, requester)
        if others:
            reason = _refusal(await tools.kubelet.still_held(others, until_s=until_s))
            if reason:
                return CallRefused(reason)
        devices = state.resources[self._resource].devices
        access = state.grant([device for device in devices if device.id in ids])
        return CallRefused(access.reason) if isinstance(access, NoAccess) else access


def _refusal(found: StillHeld) -> str:
    """Why devices that others had are not given away; empty where nothing speaks against it."""
    if found.confirmed:
        had = "; ".join(map(_owned, found.confirmed))
        return f"the kubelet allocated devices twice (Kubernetes 137534): {had}"
    if found.unanswered:
        had = "; ".join(map(_owned, found.unanswered))
        return f"the kubelet did not answer in time whether others still have devices: {had}"
    return ""


def _owned(one: HeldDevices) -> str:
    ids, pod = ", ".join(one.ids), f"{one.namespace}/{one.name}"
    return f"{ids} belongs to container {one.container} of {pod}"


_HOW = {
    Identified: IdentifiedBy.LOOKUP,
    Ambiguous: IdentifiedBy.AMBIGUOUS,
    UnknownRequester: IdentifiedBy.UNMATCHED,
}
