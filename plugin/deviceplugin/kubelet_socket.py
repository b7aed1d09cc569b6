"""Detects when the kubelet's registration socket appears, and when it is replaced.

A kubelet that starts removes every socket in its folder and creates its own again
(devicemanager/manager.go, CleanupPluginDirectory), so a new socket means that no resource is
registered.

inotify would be faster than checking the file three times a second, at the price of ctypes and of
watching a folder that may itself be replaced.
"""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CHECK_EVERY_S", "KubeletSocket", "SocketId"]

CHECK_EVERY_S = 0.3


class SocketId(NamedTuple):
    """Identifies a socket among those that were at the same path.

    The inode number alone does not: file systems reuse a number at once.
    """

    device: int
    inode: int
    changed_ns: int


class KubeletSocket:
    """The socket at a path. `watch` checks it until cancelled; others wait for a change.

    Used on one event loop.
    """

    def __init__(self, path: Path, *, check_every_s: float = CHECK_EVERY_S) -> None:
        self.path = path
        self._check_every_s = check_every_s
        self._socket_id: SocketId | None = None
        self._seen = asyncio.Event()

    @property
    def socket_id(self) -> SocketId | None:
        """The socket at the last check; None where there was none."""
        return self._socket_id

    async def watch(self) -> None:
        """Check the path repeatedly."""
        while True:
            self.check()
            await asyncio.sleep(self._check_every_s)

    def check(self) -> SocketId | None:
        """Check now; the socket as it is."""
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
        """Wait until there is a socket other than this one. None: until there is one."""
        while self._socket_id is None or self._socket_id == socket_id:
            await self._seen.wait()
        return self._socket_id
