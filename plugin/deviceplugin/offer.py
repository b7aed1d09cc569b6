"""What the plugin offers to the kubelet: a resource, its devices, and who answers for them.

What it answers: the values and the protocol between the kubelet's API
(`plugin.deviceplugin.service`) and those who decide. It must never decide anything itself, nor know
about gRPC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from plugin.container import ContainerAccess
    from plugin.deviceplugin.device_list import DeviceList

__all__ = ["Allocator", "CallRefused", "Offer"]


@dataclass(frozen=True, slots=True)
class CallRefused:
    """There will be no other answer, for this reason. The pod fails with it, for good."""

    reason: str


class Allocator(Protocol):
    """Who decides, for one resource. Raises `PluginError` where it cannot.

    A call that takes longer than `plugin.deviceplugin.service.DEADLINE_S` is cancelled and fails
    the pod, so whoever has to ask somebody falls back to what it knows before that.
    """

    async def preferred(
        self, available: tuple[str, ...], *, must_include: tuple[str, ...], size: int
    ) -> tuple[str, ...] | CallRefused:
        """`size` of the available ids, with all of `must_include`; these come in random order."""
        ...

    async def allocate(
        self, containers: tuple[tuple[str, ...], ...]
    ) -> tuple[ContainerAccess, ...] | CallRefused:
        """What each container gets with the ids that it was given, in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource as the kubelet is to have it."""

    resource: str
    device_list: DeviceList
    allocator: Allocator
