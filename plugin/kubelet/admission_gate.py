"""When the kubelet may be asked for PodResources: never while it gives devices away.

What it answers: whether a call of the kubelet's is under way or has just been, and nothing else.

The kubelet reserves devices before it calls Allocate, and notes them after our answer. A List of
PodResources in between makes it count anew what is taken, by its notes alone, if some pod has ended
meanwhile (devicemanager/manager.go, `UpdateAllocatedDevices`, 1.36.3; mended by no release yet,
kubernetes PR 137534): the reservation is lost, and the next container gets the same device. Tried
in tests/cluster/of_kubernetes/test_kubelet_devices.py. Inside GetPreferredAllocation nothing is
reserved yet, unless devices are aligned to NUMA nodes.

So calls and questions take turns: a question of ours waits until the kubelet has been quiet for
`QUIET_S`, and a call waits until the question that is under way has been answered. Others on the
node ask too, exporters of metrics above all, whenever they like: what they bring about is seen at
the next Allocate, which is refused (`plugin.allocator`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

__all__ = ["QUIET_S", "AdmissionGate"]

QUIET_S = 0.3
"""After the last call. The kubelet notes an allocation at once when it has our answer, and asks for
a pod's next container in a few milliseconds."""
_TURN_S = 0.3
"""Longest that a call waits for a question: both share the second that the kubelet may wait."""


class AdmissionGate:
    """Used on one event loop."""

    def __init__(self, *, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._n_calls = 0
        self._n_questions = 0
        self._quiet_from_s = 0.0
        self._moved = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether the kubelet gives devices away now, as far as we can know."""
        now_s = asyncio.get_running_loop().time()
        return self._n_calls > 0 or now_s < self._quiet_from_s

    @contextlib.asynccontextmanager
    async def call(self) -> AsyncGenerator[None]:
        """A call of the kubelet's, from its first moment to its answer."""
        self._n_calls += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TURN_S):
                    while self._n_questions:
                        await self._moved.wait()
            yield
        finally:
            self._n_calls -= 1
            self._quiet_from_s = asyncio.get_running_loop().time() + self._quiet_s
            self._move()

    @contextlib.contextmanager
    def question(self) -> Generator[None]:
        """A question of ours for PodResources, from its sending to its answer."""
        self._n_questions += 1
        try:
            yield
        finally:
            self._n_questions -= 1
            self._move()

    async def quiet(self, within_s: float) -> bool:
        """Wait until a question may be asked; False where that did not come in time."""
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
