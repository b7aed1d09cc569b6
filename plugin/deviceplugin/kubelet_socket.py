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

__all__ = ["LOOK_EVERY_S", "KubeletSocket", "Mark"]

LOOK_EVERY_S = 0.3


class Mark(NamedTuple):
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
        self._mark: Mark | None = None
        self._seen = asyncio.Event()

    @property
    def mark(self) -> Mark | None:
        """The socket when last looked at; None where there was none."""
        return self._mark

    async def watch(self) -> None:
        """Look at the path again and again."""
        while True:
            self.look()
            await asyncio.sleep(self._look_every_s)

    def look(self) -> Mark | None:
        """Look at once; the socket as it is now."""
        try:
            found = self.path.stat()
        except OSError:
            mark = None
        else:
            is_socket = stat.S_ISSOCK(found.st_mode)
            mark = Mark(found.st_dev, found.st_ino, found.st_ctime_ns) if is_socket else None
        if mark != self._mark:
            self._mark = mark
            self._seen.set()
            self._seen = asyncio.Event()
        return mark

    async def other_than(self, mark: Mark | None) -> Mark:
        """Wait until a socket is there that is not this one. None: until one is there."""
        while self._mark is None or self._mark == mark:
            await self._seen.wait()
        return self._mark
