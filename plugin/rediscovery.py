"""Serves a machine that has changed, once containers can be given its devices.

A reading that comes meanwhile replaces the one before. A failure is reported and retried, and what
was served stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from kube.errors import SettingsError
from plugin.errors import PluginError
from plugin.machine import serve_machine
from topology.errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from plugin.machine import MachineReading, ServedMachine, ServingRules
    from plugin.observe import Telemetry

__all__ = ["Rediscovery"]

RETRY_S = 10.0
"""Between attempts to serve a machine that has changed."""


class Rediscovery:
    """Used on one event loop. `reading` is the one that is served now.

    `prepare` makes ready what containers need of a machine, and may raise `PluginError`; `serve`
    gets the machine then.
    """

    def __init__(
        self,
        reading: MachineReading,
        rules: ServingRules,
        *,
        prepare: Callable[[ServedMachine], Awaitable[None]],
        serve: Callable[[ServedMachine], None],
        telemetry: Telemetry,
    ) -> None:
        self._latest = reading
        self._rules = rules
        self._prepare = prepare
        self._serve = serve
        self._telemetry = telemetry
        self._reason = ""
        self._n_failures = 0
        self._newer = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def see(self, reading: MachineReading) -> None:
        """Serve this reading next; starts unless that is in progress."""
        self._latest = reading
        self._newer.set()
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        """Stop; what is served stays."""
        if self._work is not None:
            self._work.cancel()

    async def _run(self) -> None:
        while (served := await self._serve_latest()) is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._newer.wait()
        if self._n_failures:
            self._reason, self._n_failures = "", 0
            self._telemetry.reader_works("inventory")
        self._serve(served)

    async def _serve_latest(self) -> ServedMachine | None:
        """None where it cannot be served."""
        while True:
            self._newer.clear()
            reading = self._latest
            try:
                served = await asyncio.to_thread(serve_machine, reading, self._rules)
                await self._prepare(served)
            except (PluginError, SettingsError, TopologyError) as error:
                self._fail(str(error))
                return None
            if reading is self._latest:
                return served

    def _fail(self, reason: str) -> None:
        """Report it, as the first of a row where the reason is another than before."""
        self._n_failures = self._n_failures + 1 if reason == self._reason else 1
        self._reason = reason
        self._telemetry.reader_failed("inventory", reason, n_failures=self._n_failures)
