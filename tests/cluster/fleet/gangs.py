"""Which gangs are whole: of those that run, a member ends with the others only.

The members of a gang wait for each other, in its first collective operation and in each later one.
A member that ended while others have no node yet would be none of a gang, and nothing that Coterie
reads would say that it ever ran, once it is deleted.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Gangs"]

_GROUP, _SIZE = "coterie.gpu/group", "coterie.gpu/group-size"


@dataclass(slots=True)
class _Gang:
    """The uids of members that run, and the names of those that have ended."""

    running: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)


class Gangs:
    """The members that run or have ended, by namespace and name of their gang."""

    def __init__(self) -> None:
        self._gangs: defaultdict[tuple[str, str], _Gang] = defaultdict(_Gang)
        self._changed = asyncio.Condition()

    async def run(self, pod: Mapping[str, Any]) -> None:
        """A pod runs; one that has the name of an ended member is of another gang."""
        async with self._changed:
            gang = self._gangs[_key(pod)]
            if pod["metadata"]["name"] in gang.ended:
                gang.ended.clear()
            gang.running.add(pod["metadata"]["uid"])
            self._changed.notify_all()

    async def await_all(self, pod: Mapping[str, Any]) -> None:
        """Wait until as many run or have ended as the pod's gang has members."""
        gang = self._gangs[_key(pod)]
        size = int((pod["metadata"].get("annotations") or {}).get(_SIZE, 0))
        async with self._changed:
            await self._changed.wait_for(lambda: len(gang.running) + len(gang.ended) >= size)

    def end(self, pod: Mapping[str, Any]) -> None:
        """A pod has ended by itself: it still counts."""
        gang = self._gangs[_key(pod)]
        gang.running.discard(pod["metadata"]["uid"])
        gang.ended.add(pod["metadata"]["name"])

    def leave(self, pod: Mapping[str, Any]) -> None:
        """A pod is gone: if it ran, the others wait for what takes its place."""
        self._gangs[_key(pod)].running.discard(pod["metadata"]["uid"])


def _key(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of the pod's gang, those of the pod where it is of none."""
    meta = pod["metadata"]
    wishes = meta.get("annotations") or {}
    return meta["namespace"], wishes[_GROUP] if _SIZE in wishes else meta["name"]
