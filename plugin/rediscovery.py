"""Takes stock of a machine that has become another one, until what it is now can be served.

What it answers: the stock (`plugin.machine.stock`) of the latest reading, once containers can be
given it; a reading that comes meanwhile takes the place of the one before. Where that does not
work, it is told and tried again, and what was served stays: it must never hand on half of a stock.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from plugin import logkeys
from plugin.errors import CdiError, PluginError
from plugin.machine import take_stock
from topology.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugin.machine import MachineReading, Stock, StockRules
    from plugin.observe import Logger

__all__ = ["Stocktaking"]

AGAIN_S = 10.0
"""Between tries to serve what the machine has become, where that did not work."""


class Stocktaking:
    """Used on one event loop. `reading` is the one that is served now.

    `prepare` makes ready what containers need of a stock, and may raise `PluginError`; `serve` gets
    the stock then.
    """

    def __init__(
        self,
        reading: MachineReading,
        rules: StockRules,
        *,
        prepare: Callable[[Stock], Awaitable[None]],
        serve: Callable[[Stock], None],
        log: Logger,
    ) -> None:
        self._latest = reading
        self._rules = rules
        self._prepare = prepare
        self._serve = serve
        self._log = log
        self._newer = asyncio.Event()
        self._taking: asyncio.Task[None] | None = None

    def see(self, reading: MachineReading) -> None:
        """Take note of a reading, and begin if nothing is under way."""
        self._latest = reading
        self._newer.set()
        if self._taking is None or self._taking.done():
            self._taking = asyncio.ensure_future(self._take())

    def stop(self) -> None:
        """Take stock no more."""
        if self._taking is not None:
            self._taking.cancel()

    async def _take(self) -> None:
        while (stock := await self._stock_of_latest()) is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._newer.wait()
        self._serve(stock)

    async def _stock_of_latest(self) -> Stock | None:
        """None where it cannot be served."""
        while True:
            self._newer.clear()
            reading = self._latest
            try:
                stock = await asyncio.to_thread(take_stock, reading, self._rules)
                await self._prepare(stock)
            except CdiError as error:
                self._log.warning(logkeys.CDI_FAILED, reason=str(error))
                return None
            except (PluginError, TopologyError) as error:
                self._log.warning(logkeys.READER_FAILED, what="stock", reason=str(error))
                return None
            if reading is self._latest:
                return stock
