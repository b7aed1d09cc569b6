"""What a command waits for, on standard error, where that takes more than a second.

Only on a terminal, in one line that is gone when the command prints its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import TextIO

__all__ = ["Progress"]

AFTER_S = 1.0
_ERASE = "\r\x1b[K"


class Progress:
    """Shows steps on a stream; quiet where it is no terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream

    @asynccontextmanager
    async def step(self, what: str) -> AsyncGenerator[None]:
        """Show `what` while the block lasts, from `AFTER_S` on."""
        if not self._stream.isatty():
            yield
            return
        task = asyncio.create_task(self._show(what))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _show(self, what: str) -> None:
        await asyncio.sleep(AFTER_S)
        n_s = int(AFTER_S)
        try:
            while True:
                self._write(f"{_ERASE}{what} … {n_s} s")
                await asyncio.sleep(1)
                n_s += 1
        finally:
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
