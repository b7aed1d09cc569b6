"""When pods were bound, as a watcher of the API server sees it.

The moments of a namespace's bindings come from one watch that is open before the first of them. The
figure that counts is pods per second from the first binding to the last one, so that start-up of
the scheduler is in no figure.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.control.api import Api

__all__ = ["BindWatch", "follow_binds", "pods_per_second"]


class BindWatch:
    """Follows one namespace; `at_s` holds, by pod name, the monotonic second of its binding.

    `sees_unbound`: it follows pods without a node, too, and `seen_s` holds when each was created,
    as the same watch shows it.
    """

    def __init__(self, api: Api, namespace: str, *, sees_unbound: bool = False) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._selector = {} if sees_unbound else {"fieldSelector": "spec.nodeName!="}
        self._changed = asyncio.Condition()
        self.seen_s: dict[str, float] = {}
        self.at_s: dict[str, float] = {}

    async def follow(self) -> None:
        """Follow until cancelled; a watch that the server ends is opened again where it was."""
        listed = await self._api.get(self._path, **self._selector)
        await self._note(*listed["items"])
        version = listed["metadata"]["resourceVersion"]
        while True:
            events = self._api.watch(self._path, resourceVersion=version, **self._selector)
            async for _, pod in events:
                version = pod["metadata"]["resourceVersion"]
                await self._note(pod)

    async def until(self, n_pods: int, *, deadline_s: float) -> bool:
        """Wait until that many pods were bound; False where the deadline passed first."""
        return await self._wait(lambda: len(self.at_s) >= n_pods, deadline_s)

    async def until_bound(self, *names: str, deadline_s: float) -> bool:
        """Wait until the pods were bound; False where the deadline passed first."""
        return await self._wait(lambda: self.at_s.keys() >= set(names), deadline_s)

    async def _wait(self, is_done: Callable[[], bool], deadline_s: float) -> bool:
        try:
            async with asyncio.timeout(deadline_s):
                async with self._changed:
                    await self._changed.wait_for(is_done)
        except TimeoutError:
            return False
        return True

    async def _note(self, *pods: dict[str, Any]) -> None:
        now_s = time.monotonic()
        async with self._changed:
            for pod in pods:
                name = pod["metadata"]["name"]
                self.seen_s.setdefault(name, now_s)
                if pod["spec"].get("nodeName"):
                    self.at_s.setdefault(name, now_s)
            self._changed.notify_all()


@asynccontextmanager
async def follow_binds(
    api: Api, namespace: str, *, sees_unbound: bool = False
) -> AsyncIterator[BindWatch]:
    """Follow a namespace's bindings while the block lasts."""
    watch = BindWatch(api, namespace, sees_unbound=sees_unbound)
    following = asyncio.create_task(watch.follow())
    try:
        yield watch
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


def pods_per_second(moments_s: list[float]) -> float:
    """Rate between the first and the last of some moments.

    >>> pods_per_second([2.0, 1.0, 3.0])
    1.0
    """
    span_s = max(moments_s) - min(moments_s)
    return (len(moments_s) - 1) / span_s
