"""What the plugin offers to the kubelet: a resource, its devices, and their allocator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from plugin.container import ContainerAccess
    from plugin.deviceplugin.device_list import DeviceList

__all__ = ["Allocator", "CallRefused", "Offer"]


@dataclass(frozen=True, slots=True)
class CallRefused:
    """The call is refused for this reason, and the pod fails with it."""

    reason: str


class Allocator(Protocol):
    """Decides for one resource. Raises `PluginError` where it cannot.

    Whatever an allocator waits for ends at `until_s`, by the event loop's clock: it then answers
    from what it knows. A call without an answer is cancelled soon after that, and fails the pod
    (`plugin.deviceplugin.service`).
    """

    async def preferred(
        self,
        available: tuple[str, ...],
        *,
        must_include: tuple[str, ...],
        size: int,
        until_s: float,
    ) -> tuple[str, ...] | CallRefused:
        """`size` of the available ids, with all of `must_include`; these come in random order."""
        ...

    async def allocate(
        self, containers: tuple[tuple[str, ...], ...], *, until_s: float
    ) -> tuple[ContainerAccess, ...] | CallRefused:
        """What each container gets with the ids that it was given, in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource as it is offered to the kubelet."""

    resource: str
    device_list: DeviceList
    allocator: Allocator
