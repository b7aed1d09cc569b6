"""Walks leave turns to others."""

from __future__ import annotations

import asyncio
import time

from extender.read_api.pacing import paced


def test_a_long_walk_leaves_a_turn_after_each_slice():
    """Items that take longer than a slice each: one turn after each."""
    turns: list[int] = []
    done: list[int] = []

    async def other() -> None:
        while len(done) < 5:
            turns.append(len(done))
            await asyncio.sleep(0)

    async def walk() -> None:
        task = asyncio.create_task(other())
        async for item in paced(range(5)):
            ends_s = time.perf_counter() + 0.002
            while time.perf_counter() < ends_s:
                pass
            done.append(item)
        await task

    asyncio.run(walk())
    assert set(turns) == {1, 2, 3, 4}


def test_a_short_walk_takes_one_turn():
    """Yielding costs more than a few items."""

    async def walk() -> list[int]:
        return [item async for item in paced(range(3))]

    assert asyncio.run(walk()) == [0, 1, 2]
