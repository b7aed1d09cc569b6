"""Which devices of a resource the kubelet is told of, and how one learns of a change.

What it answers: the list as it is now, and when it is another one. Who waits always gets the newest
list, so that ten changes at once are one for somebody slow. It must never decide which device is
well (`plugin.health.state`) or served (`plugin.machine.inventory`), nor know about gRPC.
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
    """A device as the kubelet is to see it.

    `numa_node` is None where it is unknown or the kubelet is not to know: a kubelet whose Topology
    Manager has the policy `none` chooses freely only from devices that tell none.
    """

    id: str
    is_healthy: bool = True
    numa_node: int | None = None


class DeviceList:
    """The devices of one resource, in the order in which they are listed.

    Used on one event loop. An unhealthy device stays in the list: the kubelet takes one that is
    missing for healthy (devicemanager/manager.go, UpdateAllocatedResourcesStatus).
    """

    def __init__(self, devices: Iterable[ListedDevice] = ()) -> None:
        self._devices = tuple(devices)
        self._changed = asyncio.Event()

    @property
    def devices(self) -> tuple[ListedDevice, ...]:
        """The list as it is now."""
        return self._devices

    @property
    def ids(self) -> frozenset[str]:
        """The ids in the list, of healthy and unhealthy devices."""
        return frozenset(device.id for device in self._devices)

    def replace(self, devices: Iterable[ListedDevice]) -> bool:
        """Make this the list. Whether that is another one."""
        new = tuple(devices)
        if new == self._devices:
            return False
        self._devices = new
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def changed_from(self, seen: tuple[ListedDevice, ...]) -> tuple[ListedDevice, ...]:
        """Wait until the list is another one than `seen`; the list as it is then."""
        while self._devices == seen:
            await self._changed.wait()
        return self._devices
