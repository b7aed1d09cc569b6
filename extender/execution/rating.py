"""Rates, between requests, the node states that calls had no time for.

One state at a time, so that a request waits for one rating at most. Each is an event: a replay
knows the same states at the same moment.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from extender.engine.events import RatingsResumed

if TYPE_CHECKING:
    from extender.engine import Gateway

__all__ = ["rate_deferred"]

EVERY_S = 0.05
"""Seconds between looks for work: half the time that a call may take itself."""


async def rate_deferred(gateway: Gateway) -> None:
    """Rate what is due, until cancelled."""
    while True:
        while gateway.engine.n_deferred:
            gateway.handle(RatingsResumed(1))
            await asyncio.sleep(0)
        await asyncio.sleep(EVERY_S)
