"""The stream of changes: which nodes and groups differ from before, and whether pending pods do.

While there are clients the cluster is looked at each `INTERVAL_S`. Each client has what changed
since its last event, so that one that reads slowly gets fewer events and not a longer queue.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from extender.read_api.encoding import encoder
from extender.read_api.groups import GroupTexts
from extender.read_api.over_time.bodies import ChangeBody
from extender.read_api.pacing import paced
from extender.read_api.pending import Pending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

__all__ = ["MAX_CLIENTS", "Changes", "Subscription"]

INTERVAL_S = 0.5
"""Seconds between two looks, so the least between two events."""
COMMENT_EVERY_S = 15.0
"""Seconds after which a stream without events sends a comment: proxies close idle connections,
after 60 s by default in nginx."""
MAX_CLIENTS = 64
"""Streams at a time, of all ports together."""


_encode = encoder(ChangeBody)


class Subscription:
    """What changed for one client since its last event."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._nodes: set[str] = set()
        self._groups: set[str] = set()
        self._is_pending = False
        self.is_due = asyncio.Event()
        self.is_due.set()

    def add(self, generation: int, *, nodes: set[str], groups: set[str], is_pending: bool) -> None:
        """These changed."""
        self._generation = generation
        self._nodes |= nodes
        self._groups |= groups
        self._is_pending = self._is_pending or is_pending
        self.is_due.set()

    def take(self) -> bytes:
        """The event."""
        data: ChangeBody = {
            "generation": self._generation,
            "nodes": sorted(self._nodes),
            "groups": sorted(self._groups),
            "pending": self._is_pending,
        }
        self._nodes, self._groups, self._is_pending = set(), set(), False
        self.is_due.clear()
        return b"event: change\nid: %d\ndata: %s\n\n" % (self._generation, _encode(data))


class Changes:
    """The streams. `refresh` gives the groups, with their cluster, and the pending pods now."""

    def __init__(self, refresh: Callable[[], Awaitable[tuple[GroupTexts, Pending]]]) -> None:
        self._refresh = refresh
        self._seen = GroupTexts(), Pending()
        self._clients: set[Subscription] = set()
        self._has_clients = asyncio.Event()
        self._is_ended = False

    @property
    def n_clients(self) -> int:
        """Streams that are open."""
        return len(self._clients)

    async def open(self) -> Subscription | None:
        """A stream from now on, whose first event has the generation; None where all are taken."""
        if len(self._clients) >= MAX_CLIENTS or self._is_ended:
            return None
        if not self._clients:
            self._seen = await self._refresh()
        client = Subscription(self._seen[0].cluster.generation)
        self._clients.add(client)
        self._has_clients.set()
        return client

    async def events(self, client: Subscription) -> AsyncIterator[bytes]:
        """The stream of a client, until `end`; its place is free when the stream is closed."""
        try:
            while True:
                try:
                    async with asyncio.timeout(COMMENT_EVERY_S):
                        await client.is_due.wait()
                except TimeoutError:
                    yield b": no change\n\n"
                    continue
                if self._is_ended:
                    return
                yield client.take()
        finally:
            self.close(client)

    def close(self, client: Subscription) -> None:
        """A client is gone."""
        self._clients.discard(client)
        if not self._clients:
            self._has_clients.clear()

    def end(self) -> None:
        """End all streams: the server is about to end, and waits for its responses."""
        self._is_ended = True
        for client in self._clients:
            client.is_due.set()

    async def run(self) -> None:
        """Look while there are clients, until cancelled."""
        while True:
            await self._has_clients.wait()
            await asyncio.sleep(INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """Compare with the last look. O(nodes) where one changed, O(groups) where one did."""
        (groups, pending), (old, old_pending) = await self._refresh(), self._seen
        self._seen = groups, pending
        is_pending = pending.revision != old_pending.revision
        nodes: set[str] = set()
        if groups.cluster.revision != old.cluster.revision:
            nodes = await _differing(groups.cluster.entries, old.cluster.entries)
        changed: set[str] = set()
        if groups.revision != old.revision:
            changed = await _differing(groups.texts, old.texts)
        if nodes or changed or is_pending:
            generation = groups.cluster.generation
            for client in self._clients:
                client.add(generation, nodes=nodes, groups=changed, is_pending=is_pending)


async def _differing(now: Mapping[str, object], before: Mapping[str, object]) -> set[str]:
    """The names that stand for another object than before, or for none."""
    found = before.keys() - now.keys()
    async for name, one in paced(now.items()):
        if before.get(name) is not one:
            found.add(name)
    return found
