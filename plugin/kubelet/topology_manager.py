"""Polls the kubelet for the settings of its Topology Manager.

Requests are retried until one succeeds. A restarted kubelet may have other settings, so `start`
polls again.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kube.errors import KubeError
from kube.watch import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.topology_manager import TopologyManager

__all__ = ["PollerTiming", "TopologyManagerPoller", "TopologyManagerSource"]


class TopologyManagerSource(Protocol):
    """What is needed of `kube.client.kubelet` beside the pods."""

    async def topology_manager(self, *, timeout_s: float | None = None) -> TopologyManager:
        """The settings of the Topology Manager. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class PollerTiming:
    """In seconds: the deadline of a request, and the delays between requests that fail."""

    request_s: float = 0.5
    first_delay_s: float = 1.0
    cap_delay_s: float = 60.0


_TIMING = PollerTiming()


class TopologyManagerPoller:
    """Calls `on_settings` with each answer, `on_error` with the reason of each failure."""

    def __init__(
        self,
        source: TopologyManagerSource,
        *,
        on_settings: Callable[[TopologyManager], None],
        on_error: Callable[[str], None],
        timing: PollerTiming = _TIMING,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._source = source
        self._on_settings = on_settings
        self._on_error = on_error
        self._timing = timing
        self._jitter = jitter
        self._polling: asyncio.Task[None] | None = None

    async def poll(self) -> bool:
        """Make one request; False where it failed."""
        try:
            found = await self._source.topology_manager(timeout_s=self._timing.request_s)
        except KubeError as error:
            self._on_error(str(error))
            return False
        self._on_settings(found)
        return True

    def start(self) -> None:
        """Poll until a request succeeds, in place of a poll that is in flight."""
        self.stop()
        self._polling = asyncio.ensure_future(self._poll_until_answered())

    def stop(self) -> None:
        """Stop polling."""
        if self._polling is not None:
            self._polling.cancel()

    async def _poll_until_answered(self) -> None:
        timing = self._timing
        backoff = Backoff(
            first_s=timing.first_delay_s, cap_s=timing.cap_delay_s, jitter=self._jitter
        )
        while not await self.poll():
            delay_s = backoff.next_s()
            await asyncio.sleep(delay_s)
