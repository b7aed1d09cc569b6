"""What tests wait for without looking again and again: someone says that something changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Changes", "until"]


class Changes:
    """Used on one event loop, by the one who notes changes and those who wait for them."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def note(self, *_: object) -> None:
        """Have all who wait look again; suits a callback."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, is_so: Callable[[], object], within_s: float = 60.0) -> None:
        """Wait until something is so. The time is for a test that would hang."""
        async with asyncio.timeout(within_s):
            while not is_so():
                await self._changed.wait()


async def until(is_so: Callable[[], object], within_s: float = 30.0) -> None:
    """Wait until something is so of which nobody says that it changed."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)
