"""The devices of a resource as ListAndWatch sends them, and their changes.

A waiting reader always gets the newest list: ten changes at once are one for a slow reader.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DeviceList", "ListedDevice"]


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A device as it is sent to the kubelet.

    `numa_node` is None where it is unknown, or of no use to the kubelet.
    """

    id: str
    is_healthy: bool = True
    numa_node: int | None = None


class DeviceList:
    """The devices of one resource, in the order in which they are listed.

    Used on one event loop. An unhealthy device stays in the list: the kubelet takes a missing one
    for healthy (devicemanager/manager.go, UpdateAllocatedResourcesStatus).
    """

    def __init__(self, devices: Iterable[ListedDevice] = ()) -> None:
        self._changed = asyncio.Event()
        self.devices: tuple[ListedDevice, ...] = ()
        """The list as it is now."""
        self.ids: frozenset[str] = frozenset()
        """The ids in it, of healthy and unhealthy devices."""
        self.replace(devices)

    def replace(self, devices: Iterable[ListedDevice]) -> None:
        """Set the list."""
        new = tuple(devices)
        if new != self.devices:
            self.devices = new
            self.ids = frozenset(device.id for device in new)
            self._changed.set()
            self._changed = asyncio.Event()

    async def changed_from(self, seen: tuple[ListedDevice, ...]) -> tuple[ListedDevice, ...]:
        """Wait until the list differs from `seen`; the list as it is then."""
        while self.devices == seen:
            await self._changed.wait()
        return self.devices
