"""Is the kubelet's socket there, and is it still the same?

What it answers: when the kubelet's registration socket appears, and when another one has taken its
place: a kubelet that starts removes every socket in its folder and makes its own anew
(devicemanager/manager.go, CleanupPluginDirectory), so that a new socket means that nobody is
registered. It must never connect.

The file is looked at some three times a second, at a thousandth of a core. inotify would tell
sooner, at the price of ctypes and of watching a folder that may be replaced itself.
"""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOOK_EVERY_S", "KubeletSocket", "SocketId"]

LOOK_EVERY_S = 0.3


class SocketId(NamedTuple):
    """What tells one socket from another at the same path.

    The inode's number alone does not: file systems give a number out again at once.
    """

    device: int
    inode: int
    changed_ns: int


class KubeletSocket:
    """The socket at a path. `watch` looks at it until cancelled; others wait for what is seen.

    Used on one event loop.
    """

    def __init__(self, path: Path, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self.path = path
        self._look_every_s = look_every_s
        self._socket_id: SocketId | None = None
        self._seen = asyncio.Event()

    @property
    def socket_id(self) -> SocketId | None:
        """The socket when last looked at; None where there was none."""
        return self._socket_id

    async def watch(self) -> None:
        """Look at the path again and again."""
        while True:
            self.look()
            await asyncio.sleep(self._look_every_s)

    def look(self) -> SocketId | None:
        """Look at once; the socket as it is now."""
        try:
            found = self.path.stat()
        except OSError:
            socket_id = None
        else:
            is_socket = stat.S_ISSOCK(found.st_mode)
            socket_id = (
                SocketId(found.st_dev, found.st_ino, found.st_ctime_ns) if is_socket else None
            )
        if socket_id != self._socket_id:
            self._socket_id = socket_id
            self._seen.set()
            self._seen = asyncio.Event()
        return socket_id

    async def other_than(self, socket_id: SocketId | None) -> SocketId:
        """Wait until a socket is there that is not this one. None: until one is there."""
        while self._socket_id is None or self._socket_id == socket_id:
            await self._seen.wait()
        return self._socket_id
