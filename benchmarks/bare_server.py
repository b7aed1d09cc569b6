"""Serves an application on the loopback just as the extender serves its own.

What it answers: nothing. It has what reference servers share, so that they differ from the extender
in what they do, not in how they are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvicorn

from extender.one_write import OneWriteProtocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["serve"]


def serve(app: ASGIApp, port: int) -> None:
    """Serve until killed."""
    uvicorn.run(
        app,
        http=OneWriteProtocol,
        ws="none",
        proxy_headers=False,
        host="127.0.0.1",
        port=port,
        access_log=False,
        lifespan="off",
        log_config=None,
        server_header=False,
        timeout_keep_alive=120,
    )
