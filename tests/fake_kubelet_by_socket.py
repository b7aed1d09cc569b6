"""The fake kubelet as Kubernetes 1.37.2 has it: it knows a plugin by its resource and its socket.

Whichever plugin ends, the others of its resource stay registered. A socket of which the last watch
has not ended yet is refused, and after that its end is never processed: it stays refused until the
kubelet restarts (pkg/kubelet/cm/devicemanager, manager.go PluginConnected and PluginDisconnected,
plugin/v1beta1/handler.go connectClient and runClient).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.fake_kubelet import Endpoint, FakeKubelet

if TYPE_CHECKING:
    from pathlib import Path

    from tests.plugin_client import Client

__all__ = ["KubeletBySocket"]


class KubeletBySocket(FakeKubelet):
    """`clients` has a plugin by the path of its socket, `store` by resource and path.

    Ends of watches are processed while `notices_ends` is set, as it is at first.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.store: dict[str, dict[str, Client]] = {}
        self.notices_ends = asyncio.Event()
        self.notices_ends.set()

    async def _end(self) -> None:
        await super()._end()
        self.store.clear()

    async def connect(self, client: Client) -> None:
        """`connectClient` and `PluginConnected`."""
        key = str(client.path)
        known = self.store.setdefault(client.resource, {})
        self.clients[key] = client
        try:
            await client.connect(self.dial_s)
        except ConnectionError:
            self.clients.pop(key, None)
            raise
        if key in known:
            self.clients.pop(key, None)  # and with it the plugin before, which is never released
            msg = f"device plugin already connected: {key}"
            raise ConnectionError(msg)
        known[key] = client

    async def watch_plugin(self, client: Client) -> None:
        """`runClient`: only a plugin that is still known by its socket is disconnected."""
        await client.run(lambda response: self.listed(client.resource, response))
        await self.notices_ends.wait()
        if str(client.path) in self.clients:
            await self.disconnect(str(client.path))

    async def disconnect(self, resource: str) -> None:
        """`PluginDisconnected`; `resource` is the path of the plugin's socket."""
        client = self.clients.pop(resource)
        await client.close()
        known = self.store.get(client.resource, {})
        if known.pop(resource, None) is None:
            return
        if known:
            self.endpoints[client.resource] = Endpoint(next(iter(known.values())), is_stopped=False)
            self.changes.note()
        else:
            self.mark_stopped(client.resource)
