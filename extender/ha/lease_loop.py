"""Leader election: holds or follows the Lease that decides which replica binds.

Decides whether this replica may bind now, and if not, which one may. All replicas answer filter
and prioritize from their own state; only the holder plans for good, so that no two replicas plan
one GPU. A holder that cannot renew stops by its own clock, and a new one first catches up with
everything that was written before it took the Lease (`extender.ha.lease_rules` holds the rules).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from extender import logkeys
from extender.ha.lease_rules import Move, Term, url_of
from kube.errors import Conflict, KubeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from extender.ha.lease_rules import Election
    from kube.log import Logger
    from kube.objects import Lease

__all__ = ["ReplicaTools", "Replicas"]

ROUND_SHARE = 2 / 15
"""Time between two reads of the Lease, as a share of its duration: client-go's retryPeriod of 2 s
to a leaseDuration of 15 s."""
ANSWER_SHARE = 1 / 3
"""Longest wait for the API server in one round, as a share of the duration: two such rounds fit
into the time in which a holder may begin binds."""


class LeaseApi(Protocol):
    """What is needed of `kube.client.server`."""

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        """Read the Lease; None where there is none. Raises `KubeError`."""
        ...

    async def create_lease(self, lease: Lease) -> Lease:
        """Create it. Raises `Conflict` if it is there."""
        ...

    async def update_lease(self, lease: Lease) -> Lease:
        """Replace the version that was read. Raises `Conflict` if it has changed."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaTools:
    """Dependencies of `Replicas`.

    `catch_up` returns when our state holds all that the API server had when it was called. `draw`
    gives numbers in [0, 1). `on_holder` is called when this replica may bind, and when another may.
    """

    api: LeaseApi
    catch_up: Callable[[], Awaitable[None]]
    timer: Callable[[], float]
    wall: Callable[[], datetime]
    draw: Callable[[], float]
    log: Logger
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    on_holder: Callable[[bool], None] = lambda _: None


class Replicas:
    """This replica's part in the election. `run` until cancelled, then `release`."""

    def __init__(self, election: Election, tools: ReplicaTools, *, duration_s: int) -> None:
        self._election = election
        self._url = url_of(election.identity)
        self._tools = tools
        self._duration_s = duration_s
        self._term = Term(0.0, 0.0)
        self._tasks = asyncio.TaskGroup()
        self._catching_up: asyncio.Task[None] | None = None
        self._has_caught_up = False
        self._changed = asyncio.Event()
        self.n_taken = 0
        self.n_faults = 0

    @property
    def identity(self) -> str:
        """Our own URL."""
        return self._url

    @property
    def may_bind(self) -> bool:
        """Whether a bind may begin here now."""
        return self._has_caught_up and self._tools.timer() < self._term.may_begin_until_s

    @property
    def left_s(self) -> float:
        """Time until our term ends; no bind may last longer."""
        return self._term.ends_s - self._tools.timer()

    @property
    def bind_left_s(self) -> float:
        """How long a bind that begins now may last; 0 where none may begin."""
        return max(0.0, self.left_s) if self.may_bind else 0.0

    @property
    def other_holder(self) -> str | None:
        """URL of the replica that holds the Lease, if it is another."""
        holder = self._election.holder
        return url_of(holder) if holder and holder != self._election.identity else None

    async def settled(self, *, within_s: float) -> bool:
        """Wait until we may bind or another holds the Lease; False where neither comes in time."""
        try:
            async with asyncio.timeout(within_s):
                while not (self.may_bind or self.other_holder):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Take part until cancelled; a catching up that fails ends it."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                await self._round()
                spread = 0.9 + 0.2 * self._tools.draw()
                await self._tools.sleep(ROUND_SHARE * self._duration_s * spread)

    async def release(self) -> None:
        """Release the Lease, so that no replica waits for its expiry. No bind may be in flight.

        A renewal that the end of `run` cut off may have been written, or is written meanwhile.
        Where the release is not written, the others wait all the same: it is tried for no longer
        than that.
        """
        self._lose()
        await self._twice(self._write_release, within_s=self._duration_s)

    async def _write_release(self) -> None:
        election, tools = self._election, self._tools
        if election.move(tools.timer()) is Move.READ:
            await self._read()
        lease = election.released(tools.wall())
        if lease is not None:
            await tools.api.update_lease(lease)

    async def _round(self) -> None:
        """Read the Lease and do what is due."""
        await self._twice(self._look_and_write, within_s=ANSWER_SHARE * self._duration_s)

    async def _twice(self, work: Callable[[], Awaitable[None]], *, within_s: float) -> None:
        """Do it, and once more on what is there then if the Lease was written meanwhile."""
        try:
            async with asyncio.timeout(within_s):
                try:
                    await work()
                except Conflict:
                    # Another replica was quicker, or our write succeeded unacknowledged.
                    self._election.see_changed()
                    await work()
        except (KubeError, TimeoutError) as error:
            self._fault(error)

    async def _read(self) -> None:
        election, tools = self._election, self._tools
        lease = await tools.api.get_lease(election.namespace, election.name)
        election.see(lease, tools.timer())

    async def _look_and_write(self) -> None:
        election, tools = self._election, self._tools
        if election.move(tools.timer()) is not Move.RENEW:
            await self._read()
        move = election.move(tools.timer())
        if move is Move.WAIT:
            self._lose()
            return
        if move is not Move.RENEW:
            # Others may have held it and let it go since we last looked, and planned meanwhile.
            self._lose()
        began_s = tools.timer()
        write = tools.api.create_lease if move is Move.CREATE else tools.api.update_lease
        lease = election.next_lease(tools.wall())
        # Until the answer arrives, the version of the Lease is unknown.
        election.see_changed()
        election.see(await write(lease), tools.timer())
        self._term = Term.since(began_s, self._duration_s)
        if not self._has_caught_up and self._catching_up is None:
            self._catching_up = self._tasks.create_task(self._catch_up())
        self._changed.set()

    async def _catch_up(self) -> None:
        await self._tools.catch_up()
        self._has_caught_up = True
        self.n_taken += 1
        self._tools.on_holder(self._has_caught_up)
        self._tools.log.info(logkeys.LEASE_ACQUIRED, holder=self.identity)
        self._changed.set()

    def _lose(self) -> None:
        """We do not hold the Lease."""
        if self._catching_up is not None:
            self._catching_up.cancel()
            self._catching_up = None
            self._tools.log.info(logkeys.LEASE_LOST, holder=self.other_holder or "")
        if self._has_caught_up:
            self._has_caught_up = False
            self._tools.on_holder(self._has_caught_up)
        self._term = Term(0.0, 0.0)
        self._changed.set()

    def _fault(self, error: Exception) -> None:
        self.n_faults += 1
        detail = str(error) or "no answer in time"
        self._tools.log.warning(logkeys.LEASE_ERROR, detail=detail)
