"""Which gangs are whole: of those that run, a member ends with the others only.

The members of a gang wait for each other, in its first collective operation and in each later one.
A member that ended while others have no node yet would be none of a gang, and nothing that Coterie
reads would say that it ever ran, once it is deleted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Gangs"]

_GROUP, _SIZE = "coterie.gpu/group", "coterie.gpu/group-size"


class Gangs:
    """The members that run or have ended, until none of their gang runs any more."""

    def __init__(self) -> None:
        self._is_running: dict[tuple[str, str], dict[str, bool]] = {}
        self._changed = asyncio.Condition()

    async def run(self, pod: Mapping[str, Any]) -> None:
        """A pod runs; nothing for one of no gang."""
        if (key := _key(pod)) is not None:
            async with self._changed:
                self._is_running.setdefault(key, {})[pod["metadata"]["uid"]] = True
                self._changed.notify_all()

    async def end(self, pod: Mapping[str, Any]) -> None:
        """Wait until as many run or have ended as the gang has members; then this one ends."""
        key = _key(pod)
        if key is None:
            return
        size = int(pod["metadata"]["annotations"][_SIZE])
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._is_running.get(key, {})) >= size)
        self._is_running[key][pod["metadata"]["uid"]] = False
        self._drop_if_over(key)

    def leave(self, pod: Mapping[str, Any]) -> None:
        """A pod was deleted: one that ran is missed by the others, one that ended is not."""
        key, uid = _key(pod), pod["metadata"]["uid"]
        if key is not None and self._is_running.get(key, {}).get(uid):
            del self._is_running[key][uid]
            self._drop_if_over(key)

    def _drop_if_over(self, key: tuple[str, str]) -> None:
        if not any(self._is_running[key].values()):
            del self._is_running[key]


def _key(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """Namespace and name of the pod's gang, if it is of one."""
    meta = pod["metadata"]
    wishes = meta.get("annotations") or {}
    return (meta["namespace"], wishes[_GROUP]) if _SIZE in wishes else None
