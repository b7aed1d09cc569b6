"""`kubectl coterie ui`: the extender's page in the browser, while the port is forwarded."""

from __future__ import annotations

import asyncio
import webbrowser
from typing import TYPE_CHECKING

from kubectl_coterie.commands.session_of import session_of
from kubectl_coterie.terminal import Output

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["run"]


def run(given: Namespace) -> int:
    """Open it and wait for ctrl-C. Raises `CliError`."""
    asyncio.run(_open(given))
    return 0


async def _open(given: Namespace) -> None:
    output = Output()
    async with session_of(given) as session:
        api = await session.read_api(given.port)
        await api.get("cluster")
        address = f"{api.url}/ui/"
        output.print(f"{address}  (ctrl-C ends it)")
        if not given.no_browser:
            await asyncio.to_thread(webbrowser.open, address)
        await asyncio.Event().wait()
