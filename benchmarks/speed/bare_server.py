"""Serves an application on the loopback just as the extender serves its own.

It is shared by the reference servers, so that they differ from the extender in what they do, not in
how they are served.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
import uvloop

from extender.http.server import Door, listen, run_until_signal

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["BODY_LIMIT_BYTES", "serve"]

BODY_LIMIT_BYTES = 16 * 1024 * 1024
"""More than any request of the benchmarks has."""
_KEEP_ALIVE_S = 120


def serve(app: ASGIApp, port: int) -> None:
    """Serve until SIGTERM."""
    door = Door(app, listen("127.0.0.1", port, setting="port"))
    log = structlog.get_logger()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_until_signal([door], keep_alive_s=_KEEP_ALIVE_S, log=log))
