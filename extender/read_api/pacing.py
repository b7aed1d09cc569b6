"""Walks over the whole cluster, in short turns with pauses in which the event loop serves others.

A scheduler's call takes several turns of the event loop (its bytes, its task, its answer): with
pauses it meets one turn of a walk at most, and mostly none.
"""

from __future__ import annotations

import asyncio
import time
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterable, Iterator

__all__ = ["batches", "drive", "paced", "pause"]

T = TypeVar("T")

TURN_S = 0.0003
"""Longest turn of a walk on the event loop, but for single items that take longer."""
PAUSE_S = 0.001
"""Between two turns."""


async def pause() -> None:
    """Leave the event loop to others."""
    await asyncio.sleep(PAUSE_S)


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a pause after each turn of `TURN_S`."""
    ends_s = time.perf_counter() + TURN_S
    for item in items:
        yield item
        if time.perf_counter() >= ends_s:
            await pause()
            ends_s = time.perf_counter() + TURN_S


def batches(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Up to `size` items at a time, where a look at the time costs more than an item.

    >>> list(batches("abcde", 2))
    [('a', 'b'), ('c', 'd'), ('e',)]
    """
    rest = iter(items)
    while part := tuple(islice(rest, size)):
        yield part


async def drive(turns: Generator[None, None, T]) -> T:
    """What turns return in the end, with a pause after `TURN_S` of them."""
    ends_s = time.perf_counter() + TURN_S
    while True:
        try:
            next(turns)
        except StopIteration as end:
            value: T = end.value
            return value
        if time.perf_counter() >= ends_s:
            await pause()
            ends_s = time.perf_counter() + TURN_S
