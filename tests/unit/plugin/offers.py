"""Offers, and an allocator that gives the first ids or prepared answers, for tests of gRPC."""

from __future__ import annotations

import contextlib
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any

from plugin.container import ContainerAccess
from plugin.deviceplugin import DeviceList, ListedDevice, Offer, ResourceServer
from tests.changes import Changes
from tests.plugin_client import Client

if TYPE_CHECKING:
    import os

GPU = "nvidia.com/gpu"


class LookedAt(PosixPath):
    """A path that says when someone looks what is there; see `looked_at`."""

    looks: Changes
    n_looks: int

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As any path."""
        self.n_looks += 1
        self.looks.note()
        return super().stat(follow_symlinks=follow_symlinks)

    async def again(self) -> None:
        """Wait for one whole look: from one that begins now to the next."""
        n_before = self.n_looks
        await self.looks.until(lambda: self.n_looks >= n_before + 2)


def looked_at(path: Path) -> LookedAt:
    """The same path."""
    one = LookedAt(path)
    one.looks, one.n_looks = Changes(), 0
    return one


def ids(n: int) -> tuple[str, ...]:
    """Ids of n devices."""
    return tuple(f"GPU-{i}" for i in range(n))


def device_list(n: int) -> DeviceList:
    """A list of n devices that are well."""
    return DeviceList(ListedDevice(id_) for id_ in ids(n))


class Obliging:
    """Gives the first ids in order. `answers` come instead: a value, an error, or work to await."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.until_s: list[float] = []
        self.asked = Changes()

    async def preferred(self, available, *, must_include, size, until_s):
        """The first ids that do."""
        self.until_s.append(until_s)
        self.requests.append((tuple(sorted(available)), tuple(sorted(must_include)), size))
        self.asked.note()
        others = sorted(set(available) - set(must_include))
        return await self._answer((*sorted(must_include), *others)[:size])

    async def allocate(self, containers, *, until_s):
        """The ids, as a variable."""
        self.until_s.append(until_s)
        self.requests.append(containers)
        self.asked.note()
        return await self._answer(
            tuple(
                ContainerAccess(env={"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(one))})
                for one in containers
            )
        )

    async def _answer(self, usual: Any) -> Any:
        answer = self.answers.pop(0) if self.answers else usual
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            work: Any = answer()
            return await work
        return answer


def offer(n: int = 4, *, allocator: Any = None, name=GPU) -> Offer:
    """An offer of n devices."""
    return Offer(name, device_list(n), allocator or Obliging())


class ServedOffer:
    """An offer that is served until `end`, and a kubelet's client of it."""

    def __init__(self, one: Offer, folder: Path, *, deadline_s: float) -> None:
        self.offer = one
        self.calls: list[Any] = []
        self.server = ResourceServer(one, folder, on_call=self.calls.append, deadline_s=deadline_s)
        self.client: Client
        """From `begin` on."""
        self._stack = contextlib.AsyncExitStack()

    async def begin(self) -> None:
        """Serve, and connect."""
        serving = await self._stack.enter_async_context(self.server.serving())
        self.client = Client(self.offer.resource, serving.path)
        await self.client.connect(5.0)

    async def end(self) -> None:
        """Serve no longer."""
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def served(folder, one, *, deadline_s=1.0):
    """Serve an offer and connect to it."""
    service = ServedOffer(one, folder, deadline_s=deadline_s)
    await service.begin()
    try:
        yield service
    finally:
        await service.end()
        await service.client.close()
