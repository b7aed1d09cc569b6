"""An event loop whose time jumps to the next timer: hours pass at once, in order.

For code that waits by asyncio alone: sockets are not waited for, and what is meant for a thread
runs at once.
"""

from __future__ import annotations

import asyncio
import selectors
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["run_at_once"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, at_turn: Callable[[], None]) -> None:
        self.now_s = 1000.0
        super().__init__(_Selector(self, at_turn))

    def time(self) -> float:
        """Seconds since some moment."""
        return self.now_s

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run it here and now; its result comes in a later turn of the loop, as a thread's does."""
        del executor
        done: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - as a thread does
            self.call_soon(_end, done, partial(done.set_exception, error))
        else:
            self.call_soon(_end, done, partial(done.set_result, result))
        return done


def _end(done: asyncio.Future[T], end: Callable[[], None]) -> None:
    if not done.cancelled():
        end()


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: _Loop, at_turn: Callable[[], None]) -> None:
        super().__init__()
        self._loop = loop
        self._at_turn = at_turn

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing is ready before the next timer, which is now."""
        self._at_turn()
        if timeout is None:
            msg = "all tasks wait, and no timer runs"
            raise RuntimeError(msg)
        self._loop.now_s += timeout
        return super().select(0)


def run_at_once(
    work: Coroutine[object, object, T], *, at_turn: Callable[[], None] = lambda: None
) -> T:
    """As `asyncio.run`, without waiting; `at_turn` is called between two turns of the loop."""
    with asyncio.Runner(loop_factory=partial(_Loop, at_turn)) as runner:
        return runner.run(work)
