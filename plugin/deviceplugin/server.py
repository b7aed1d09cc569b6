"""The gRPC server of one resource on its socket in the kubelet's folder.

`serving` can be entered repeatedly, each time with a new server: the kubelet never returns to one
that it has left.

gRPC removes the file of a unix socket at the end by its path, whatever process owns the file by
then: an old plugin that ends would remove the socket of its successor (tried with grpcio 1.85). So
the server binds a private name, and renames it to the one that is registered. That also replaces
what a killed plugin left.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING

import grpc.aio

from plugin.deviceplugin.service import DEADLINE_S, DevicePluginService
from plugin.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from plugin.deviceplugin.offer import Offer
    from plugin.deviceplugin.service import DevicePluginCall

__all__ = ["SOCKET_NAMES", "ResourceServer", "endpoint_of"]

_PREFIX = "coterie-"
SOCKET_NAMES = (f"{_PREFIX}*.sock", f".{_PREFIX}*.sock")
"""Patterns of the names of our sockets: those that are registered, and private ones."""
_MAX_PATH_BYTES = 107
"""Of a unix socket (unix(7), sun_path)."""


def endpoint_of(resource: str) -> str:
    """Name the socket's file as it is registered.

    >>> endpoint_of("nvidia.com/mig-1g.10gb")
    'coterie-nvidia.com_mig-1g.10gb.sock'
    """
    return f"{_PREFIX}{resource.replace('/', '_')}.sock"


class ResourceServer:
    """Serves an offer in `folder`, the kubelet's folder for device plugins as we see it."""

    def __init__(
        self,
        offer: Offer,
        folder: Path,
        *,
        on_call: Callable[[DevicePluginCall], None],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.offer = offer
        self.path = folder / endpoint_of(offer.resource)
        self._on_call = on_call
        self._deadline_s = deadline_s

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[DevicePluginService]:
        """Serve with a fresh server. Raises `RegistrationError` where no socket can be made.

        At the end in-flight calls are finished first, then the file is removed if it is still this
        server's own, then the kubelet's watch ends.
        """
        service = DevicePluginService(
            self.offer, on_call=self._on_call, deadline_s=self._deadline_s
        )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((service.handler(),))
        own: tuple[int, int] | None = None
        try:
            own = await self._start(server)
            yield service
        finally:
            # A kubelet that has stopped watching has closed its calls: no answer is awaited.
            if not service.ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._deadline_s):
                        await service.idle()
            self._remove(own)
            await server.stop(None)

    async def _start(self, server: grpc.aio.Server) -> tuple[int, int]:
        """Start at the path; device and inode of the socket's file."""
        private = self.path.with_name(f".{_PREFIX}{secrets.token_hex(4)}.sock")
        try:
            server.add_insecure_port(f"unix:{private}")
            await _start_whole(server)
            private.rename(self.path)
            status = self.path.stat()
        except (RuntimeError, OSError) as error:
            msg = (
                f"{self.offer.resource}: cannot serve at {self.path} ({error}), expected a folder "
                f"that can be written and a path of at most {_MAX_PATH_BYTES} bytes"
            )
            raise RegistrationError(msg) from error
        return status.st_dev, status.st_ino

    def _remove(self, own: tuple[int, int] | None) -> None:
        with contextlib.suppress(FileNotFoundError):
            status = self.path.stat()
            if (status.st_dev, status.st_ino) == own:
                self.path.unlink()


async def _start_whole(server: grpc.aio.Server) -> None:
    """Start, and be cancelled only afterwards: grpc cannot stop a server that is half started."""
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        raise
