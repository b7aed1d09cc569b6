"""Walks leave turns to others."""

from __future__ import annotations

import asyncio

from extender.read_api.pacing import TURN_S, paced
from tests.virtual_time import run_at_once


def turns_of_a_walk(monkeypatch, n_items, item_s):
    """How many items each turn of the loop took, of items that take so long each."""
    now_s, n_taken = 0.0, [0]

    async def walk() -> None:
        nonlocal now_s
        async for _ in paced(range(n_items)):
            now_s += item_s
            n_taken[-1] += 1

    monkeypatch.setattr("time.perf_counter", lambda: now_s)
    run_at_once(walk(), at_turn=lambda: n_taken.append(0))
    return [n for n in n_taken if n]


def test_a_long_walk_leaves_a_turn_after_each_slice(monkeypatch):
    """Whether an item takes a slice by itself, or some of them do together."""
    assert turns_of_a_walk(monkeypatch, 5, 2 * TURN_S) == [1, 1, 1, 1, 1]
    assert turns_of_a_walk(monkeypatch, 5, TURN_S / 1.5) == [2, 2, 1]


def test_a_short_walk_takes_one_turn(monkeypatch):
    """Yielding costs more than a few items."""
    assert turns_of_a_walk(monkeypatch, 3, TURN_S / 10) == [3]


def test_a_walk_keeps_every_item_in_its_order():
    """Pauses lose nothing."""

    async def walk() -> list[int]:
        return [item async for item in paced(range(3))]

    assert asyncio.run(walk()) == [0, 1, 2]
