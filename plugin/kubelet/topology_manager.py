"""How the kubelet aligns devices to NUMA nodes: asked until it tells.

What it answers: the settings of the kubelet's Topology Manager, as soon as the kubelet answers; a
new kubelet may be set otherwise, so that it is asked anew. What stands in until then, and what
follows from an answer, is the caller's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.client import TopologyManagerSettings

__all__ = ["PollerTiming", "TopologyManagerPoller", "TopologyManagerSource"]


class TopologyManagerSource(Protocol):
    """What is needed of `kube.client.kubelet` beside the pods."""

    async def topology_manager(self, *, timeout_s: float | None = None) -> TopologyManagerSettings:
        """How the Topology Manager is set. Raises `KubeError`."""
        ...


@dataclass(frozen=True, slots=True)
class PollerTiming:
    """When to ask, in seconds: an answer takes no longer than `answer_s`."""

    answer_s: float = 0.5
    first_s: float = 1.0
    cap_s: float = 60.0
    """Delays between questions to a kubelet that does not answer: doubled from first to cap."""


_PACE = PollerTiming()


class TopologyManagerPoller:
    """`on_told` hears of each answer, `on_trouble` why a question got none."""

    def __init__(
        self,
        source: TopologyManagerSource,
        *,
        on_told: Callable[[TopologyManagerSettings], None],
        on_trouble: Callable[[str], None],
        pace: PollerTiming = _PACE,
    ) -> None:
        self._source = source
        self._on_told = on_told
        self._on_trouble = on_trouble
        self._pace = pace
        self._asking: asyncio.Task[None] | None = None

    async def ask(self) -> bool:
        """Ask once; False where there was no answer."""
        try:
            found = await self._source.topology_manager(timeout_s=self._pace.answer_s)
        except KubeError as error:
            self._on_trouble(str(error))
            return False
        self._on_told(found)
        return True

    def begin(self) -> None:
        """Ask until there is an answer, in place of an inquiry that is under way."""
        self.stop()
        self._asking = asyncio.ensure_future(self._ask_until_told())

    def stop(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask_until_told(self) -> None:
        delay_s = self._pace.first_s
        while not await self.ask():
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, self._pace.cap_s)
