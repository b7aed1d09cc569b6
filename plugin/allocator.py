"""Answers the kubelet's calls for one resource: whose container it is, and what it gets.

What it answers: GetPreferredAllocation and Allocate, in the order: who asks
(`plugin.allocation.pod_matching`, by what is known, else by a look at the kubelet), which devices
(`plugin.allocation.preferred_allocation`), what the container sees of them
(`plugin.nvidia.container.allocate_response`). It decides none of that itself.

An Allocate is checked like a question in which everything is fixed: the kubelet may have taken
other devices than were answered, or none may have been asked for. So no container of a pod that
requires something starts on less, none on a device that is known to be bad, and none on one that
another pod has, of which the kubelet has lost count (`plugin.kubelet.admission_gate`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from plugin.allocation import (
    AllocationRefusal,
    Ambiguous,
    DeviceRequest,
    Identified,
    UnknownRequester,
    choose_devices,
    identify,
)
from plugin.deviceplugin import CallRefused
from plugin.errors import KubeletError
from plugin.nvidia.container.allocate_response import grant
from plugin.nvidia.container.device_nodes import NoAccess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.allocation import Allocation, NodeState, Requester
    from plugin.kubelet import AdmissionGate, KubeletSnapshot
    from plugin.machine import Resource
    from plugin.nvidia.container.allocate_response import AccessRules, ContainerAccess
    from plugin.pods import HeldDevices

__all__ = [
    "AllocationWitness",
    "AllocatorTools",
    "IdentifiedBy",
    "KubeletLook",
    "KubeletWord",
    "ResourceAllocator",
]


class IdentifiedBy(Enum):
    """How it was found out who asks."""

    KNOWN = "known"
    """By what was known already."""
    ASKED = "asked"
    """By a look at the kubelet."""
    AMBIGUOUS = "ambiguous"
    """The look left several containers."""
    NOBODY = "nobody"
    """The look left none."""
    BLIND = "blind"
    """The kubelet did not let us look."""

    @property
    def is_fresh(self) -> bool:
        """Whether the kubelet was looked at for it."""
        return self not in {IdentifiedBy.KNOWN, IdentifiedBy.BLIND}


class KubeletLook(Protocol):
    """What is needed of `plugin.kubelet.view`."""

    gate: AdmissionGate

    async def look(self, *, asks_devices: bool | None = None) -> KubeletSnapshot:
        """Look at the kubelet. Raises `KubeletError`."""
        ...


class KubeletWord(KubeletLook, Protocol):
    """What the allocator needs of it."""

    async def still_held(self, holdings: Iterable[HeldDevices]) -> tuple[HeldDevices, ...]:
        """What of these the kubelet counts as their pods' at this moment."""
        ...


class AllocationWitness(Protocol):
    """Who is told, on the event loop. Must not wait."""

    def identified(self, how: IdentifiedBy, duration_s: float) -> None:
        """Take note of how it was found out who asks, and how long that took."""
        ...

    def looked(self, trouble: str) -> None:
        """Take note of a look at the kubelet; `trouble` says what it did not tell, and why."""
        ...

    def answered(
        self, request: DeviceRequest, requester: Requester, found: Allocation | AllocationRefusal
    ) -> None:
        """Take note of an answer to GetPreferredAllocation."""
        ...

    def allocated(
        self, request: DeviceRequest, requester: Requester, found: Allocation | CallRefused
    ) -> None:
        """Take note of an answer to Allocate."""
        ...


@dataclass(frozen=True, slots=True)
class AllocatorTools:
    """What all allocators of a node share."""

    state: NodeState
    kubelet: KubeletWord
    witness: AllocationWitness
    rules: AccessRules


class ResourceAllocator:
    """The `plugin.deviceplugin.offer.Allocator` of one resource."""

    def __init__(self, resource: str, tools: AllocatorTools) -> None:
        self._resource = resource
        self._tools = tools

    async def preferred(
        self, available: tuple[str, ...], *, must_include: tuple[str, ...], size: int
    ) -> tuple[str, ...] | CallRefused:
        """`size` of the available ids, with all of `must_include`."""
        async with self._tools.kubelet.gate.call():
            request = DeviceRequest(
                self._resource, frozenset(available), frozenset(must_include), size
            )
            return await self._prefer(request)

    async def _prefer(self, request: DeviceRequest) -> tuple[str, ...] | CallRefused:
        tools, state = self._tools, self._tools.state
        # Devices that are aligned are reserved before the question.
        requester, how = await self._identify(request, asks_devices=not state.tells_numa_nodes)
        supply = state.supply(self._served(), requester, request, is_fresh=how.is_fresh)
        found = choose_devices(request, requester, supply)
        tools.witness.answered(request, requester, found)
        if isinstance(found, AllocationRefusal):
            state.refuse(requester)
            return CallRefused(str(found))
        state.expect(self._resource, found.ids, requester)
        return found.ids

    async def allocate(
        self, containers: tuple[tuple[str, ...], ...]
    ) -> tuple[ContainerAccess, ...] | CallRefused:
        """What each container gets with the ids that it was given."""
        answers: list[ContainerAccess] = []
        async with self._tools.kubelet.gate.call():
            for ids in containers:
                answer = await self._allocate(ids)
                if isinstance(answer, CallRefused):
                    return answer
                answers.append(answer)
        return tuple(answers)

    async def _allocate(self, ids: tuple[str, ...]) -> ContainerAccess | CallRefused:
        tools, state = self._tools, self._tools.state
        request = DeviceRequest.given(self._resource, ids)
        requester = state.expected(self._resource, ids)
        if requester is None:
            requester, _ = await self._identify(request, asks_devices=False)
        found = choose_devices(request, requester, state.supply(self._served(), requester, request))
        if isinstance(found, AllocationRefusal):
            return self._refuse(request, requester, CallRefused(str(found)))
        others = state.held_by_others(self._resource, ids, requester)
        if others and (taken := await tools.kubelet.still_held(others)):
            return self._refuse(request, requester, CallRefused(_taken(taken)))
        access = self._access(ids)
        if isinstance(access, CallRefused):
            return self._refuse(request, requester, access)
        state.gave(self._resource, ids, requester)
        tools.witness.allocated(request, requester, found)
        return access

    def _refuse(
        self, request: DeviceRequest, requester: Requester, refused: CallRefused
    ) -> CallRefused:
        self._tools.state.refuse(requester)
        self._tools.witness.allocated(request, requester, refused)
        return refused

    def _access(self, ids: tuple[str, ...]) -> ContainerAccess | CallRefused:
        chosen = [device for device in self._served().devices if device.id in ids]
        tools = self._tools
        access = grant(
            chosen, tools.state.stock.reading, present=tools.state.present, rules=tools.rules
        )
        return CallRefused(access.reason) if isinstance(access, NoAccess) else access

    async def _identify(
        self, request: DeviceRequest, *, asks_devices: bool
    ) -> tuple[Requester, IdentifiedBy]:
        """Who asks: by what is known where that is certain, else by a look at the kubelet."""
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        found, how = await self._find(request, asks_devices=asks_devices)
        self._tools.witness.identified(how, clock() - begun_s)
        return found, how

    async def _find(
        self, request: DeviceRequest, *, asks_devices: bool
    ) -> tuple[Requester, IdentifiedBy]:
        tools, state = self._tools, self._tools.state
        known = identify(request, state.view(is_fresh=False))
        if isinstance(known, Identified):
            return known, IdentifiedBy.KNOWN
        since = state.grants
        try:
            look = await tools.kubelet.look(asks_devices=asks_devices)
        except KubeletError as error:
            tools.witness.looked(str(error))
            return UnknownRequester(str(error)), IdentifiedBy.BLIND
        tools.witness.looked(look.trouble)
        state.see(look, since=since)
        found = identify(request, state.view(is_fresh=True))
        return found, _HOW[type(found)]

    def _served(self) -> Resource:
        resources = self._tools.state.stock.inventory.resources
        return next(one for one in resources if one.name == self._resource)


def _taken(holdings: Iterable[HeldDevices]) -> str:
    had = (
        f"{', '.join(one.ids)} belongs to container {one.container} of {one.namespace}/{one.name}"
        for one in holdings
    )
    return f"the kubelet gives devices away twice (Kubernetes 137534): {'; '.join(had)}"


_HOW = {
    Identified: IdentifiedBy.ASKED,
    Ambiguous: IdentifiedBy.AMBIGUOUS,
    UnknownRequester: IdentifiedBy.NOBODY,
}
