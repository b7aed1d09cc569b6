"""The gRPC server of one resource on a socket in the kubelet's folder.

`serving` can be entered repeatedly, each time with a new server on a socket of a name that was
never used. From Kubernetes 1.37 on the kubelet knows a plugin by its resource and its socket. It
refuses a socket as long as it has not processed the end of the last watch there, and after such a
refusal it never releases that socket: the node would go on offering the GPUs of an ended plugin,
and no plugin could register there until the kubelet restarts (1.37.2, devicemanager/manager.go
PluginConnected, plugin/v1beta1/handler.go deregisterClient). Under a name of its own a plugin can
also register beside its predecessor, which then leaves with its own socket only.

A plugin that was killed leaves its socket, which the next server of the resource removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio

from plugin.deviceplugin.service import DEADLINE_S, FOLLOWS_WITHIN_S, DevicePluginService
from plugin.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from plugin.deviceplugin.offer import Offer
    from plugin.deviceplugin.service import DevicePluginCall

__all__ = ["SOCKET_NAMES", "ResourceServer", "Serving", "is_served", "socket_names"]

_PREFIX = "coterie-"
SOCKET_NAMES = f"{_PREFIX}*.sock"
"""Pattern of the names of our sockets."""
_MAX_PATH_BYTES = 107
"""Of a unix socket (unix(7), sun_path)."""


def socket_names(resource: str) -> str:
    """Pattern of the names of a resource's sockets.

    >>> socket_names("nvidia.com/mig-1g.10gb")
    'coterie-nvidia.com_mig-1g.10gb-*.sock'
    """
    return f"{_PREFIX}{resource.replace('/', '_')}-*.sock"


def is_served(path: Path) -> bool:
    """Whether a process listens at a socket: one that a killed plugin left refuses connections."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0)
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # its queue of connections is full, or it is not ours to judge
    return True


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that runs: where, and what the kubelet calls there."""

    path: Path
    service: DevicePluginService


class ResourceServer:
    """Serves an offer in `folder`, the kubelet's folder for device plugins as we see it."""

    def __init__(
        self,
        offer: Offer,
        folder: Path,
        *,
        on_call: Callable[[DevicePluginCall], None],
        deadline_s: float = DEADLINE_S,
        follows_within_s: float = FOLLOWS_WITHIN_S,
    ) -> None:
        self.offer = offer
        self._folder = folder
        self._on_call = on_call
        self._deadline_s = deadline_s
        self._follows_within_s = follows_within_s

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[Serving]:
        """Serve with a fresh server. Raises `RegistrationError` where no socket can be made.

        At the end in-flight calls are finished first, then the file is removed, then the kubelet's
        watch ends.
        """
        service = DevicePluginService(
            self.offer,
            on_call=self._on_call,
            deadline_s=self._deadline_s,
            follows_within_s=self._follows_within_s,
        )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((service.handler(),))
        names = socket_names(self.offer.resource)
        path = self._folder / names.replace("*", secrets.token_hex(4))
        try:
            await self._start(server, path)
            yield Serving(path, service)
        finally:
            # A kubelet that has stopped watching has closed its calls: no answer is awaited.
            if not service.ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._deadline_s):
                        await service.idle()
            path.unlink(missing_ok=True)
            await server.stop(None)

    async def _start(self, server: grpc.aio.Server, path: Path) -> None:
        try:
            for left in self._folder.glob(socket_names(self.offer.resource)):
                if not is_served(left):
                    left.unlink(missing_ok=True)
            server.add_insecure_port(f"unix:{path}")
            await _start_whole(server)
        except (RuntimeError, OSError) as error:
            msg = (
                f"{self.offer.resource}: cannot serve at {path} ({error}), expected a folder "
                f"that can be written and a path of at most {_MAX_PATH_BYTES} bytes"
            )
            raise RegistrationError(msg) from error


async def _start_whole(server: grpc.aio.Server) -> None:
    """Start, and be cancelled only afterwards: grpc cannot stop a server that is half started."""
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        raise
