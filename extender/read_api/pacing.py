"""Walks over the whole cluster, in slices between which the event loop serves others."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

__all__ = ["paced"]

T = TypeVar("T")

SLICE_S = 0.001
"""Longest turn of a walk on the event loop: a third of what long lists of a watch take, since a
walk goes on for longer."""


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, yielding to the event loop after each turn of `SLICE_S`."""
    ends_s = time.perf_counter() + SLICE_S
    for item in items:
        yield item
        if time.perf_counter() >= ends_s:
            await asyncio.sleep(0)
            ends_s = time.perf_counter() + SLICE_S
