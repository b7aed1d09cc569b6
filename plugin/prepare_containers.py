"""Makes ready what containers need to reach the devices of a stock.

What it answers: which device nodes there are beside the GPUs' own
(`plugin.nvidia.container.dev_files`), once the devices are described for runtimes with CDI where
settings ask for it (`plugin.nvidia.container.cdi`, `plugin.nvidia.container.cdi_files`): a
container that gets a name which its runtime does not find would not start. What a container gets of
it `plugin.nvidia.container.allocate_response` says.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from plugin import logkeys
from plugin.nvidia.container.cdi import cdi_documents
from plugin.nvidia.container.cdi_files import open_cdi_files
from plugin.nvidia.container.dev_files import find_dev_root, look

if TYPE_CHECKING:
    from plugin.config import Settings
    from plugin.machine import Stock
    from plugin.nvidia.container.device_nodes import PresentNodes
    from plugin.observe import Logger

__all__ = ["open_access"]

_HERE = Path("/")


async def open_access(stock: Stock, settings: Settings, *, log: Logger) -> PresentNodes:
    """Find the device nodes that containers need, and describe the devices for CDI.

    Raises `ReadingError` where a node that must be there is not, `CdiError` where the description
    cannot be made or written. A device that cannot be described is told and left out.
    """
    present = await asyncio.to_thread(_find_nodes, settings)
    if settings.access_rules.has_cdi:
        made = cdi_documents(
            stock.devices,
            stock.reading,
            present,
            strategy=settings.device_id_strategy,
            dev_root=str(settings.host_dev_root),
        )
        for reason in made.left_out:
            log.warning(logkeys.CDI_FAILED, reason=reason)
        # nvidia-ctk is another program, and may take its time.
        rules = settings.cdi_rules
        await asyncio.to_thread(lambda: open_cdi_files(rules).write(made.documents))
    return present


def _find_nodes(settings: Settings) -> PresentNodes:
    return look(
        find_dev_root(settings.driver_root_ctr_path, _HERE),
        settings.proc_root,
        extras=settings.extras,
        imex_channels=settings.imex_channel_ids,
        is_imex_required=settings.imex_required,
    )
