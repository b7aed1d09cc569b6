"""When PodResources may be listed: never while the kubelet allocates devices.

It knows whether a call of the kubelet is in flight or has just ended, and nothing else.

The kubelet reserves devices before it calls Allocate, and records them after our answer. A List of
PodResources in between makes it recount what is taken, from its records alone, if a pod has ended
meanwhile (devicemanager/manager.go, `UpdateAllocatedDevices`, 1.36.3; fixed in no release yet,
kubernetes PR 137534): the reservation is lost, and the next container gets the same device. Tried
in tests/cluster/of_kubernetes/test_kubelet_devices.py. Inside GetPreferredAllocation nothing is
reserved yet, unless devices are aligned to NUMA nodes.

So calls and our own requests take turns: a request waits until the kubelet has been quiet for
`QUIET_S`, and a call waits until the request in flight has been answered. Other clients on the
node, above all exporters of metrics, list at any time: the effect is detected at the next Allocate,
which is refused (`plugin.allocator`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

__all__ = ["QUIET_S", "AdmissionGate"]

QUIET_S = 0.3
"""After the last call. The kubelet records an allocation at once when it has our answer, and makes
the call for a pod's next container within a few milliseconds."""
_TURN_S = 0.3
"""Longest that a call waits for a request; it is part of the call's own time (`DEADLINE_S` of
`plugin.deviceplugin.service`)."""


class AdmissionGate:
    """Used on one event loop."""

    def __init__(self, *, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._n_calls = 0
        self._n_requests = 0
        self._quiet_from_s = 0.0
        self._moved = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether the kubelet allocates devices now, as far as is known."""
        now_s = asyncio.get_running_loop().time()
        return self._n_calls > 0 or now_s < self._quiet_from_s

    @contextlib.asynccontextmanager
    async def call(self, until_s: float = math.inf) -> AsyncGenerator[None]:
        """A call of the kubelet, from its arrival to its answer; waits no longer than `until_s`."""
        self._n_calls += 1
        turn_s = asyncio.get_running_loop().time() + _TURN_S
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(turn_s, until_s)):
                    while self._n_requests:
                        await self._moved.wait()
            yield
        finally:
            self._n_calls -= 1
            self._quiet_from_s = asyncio.get_running_loop().time() + self._quiet_s
            self._move()

    @contextlib.contextmanager
    def request(self) -> Generator[None]:
        """A PodResources request of ours, from its sending to its answer."""
        self._n_requests += 1
        try:
            yield
        finally:
            self._n_requests -= 1
            self._move()

    async def quiet(self, within_s: float) -> bool:
        """Wait until a request may be sent; False where that was not in time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while self.is_busy:
            if loop.time() >= until_s:
                return False
            soonest_s = until_s if self._n_calls else min(until_s, self._quiet_from_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(soonest_s):
                    await self._moved.wait()
        return True

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
