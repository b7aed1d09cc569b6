"""Who of several replicas binds: the rules of the Lease, as values.

They say what to do about the Lease as it was last read, and until when this replica may bind. They
read no clock and do no I/O (`extender.ha.lease_loop` does). Times are the monotonic
clock's; the times in the Lease are for people, since no two machines agree on them.

The rules, which are client-go's (tools/leaderelection) with one addition:

1. A replica may take a Lease without a holder, or whose holder has not renewed it for as long as
   it lasts, counted from when this replica saw the last renewal.
2. The holder may begin binds until 2/3 of the duration after it *began* its last successful
   renewal, and no bind of it may last beyond the whole. So the last request of an old holder has
   ended before a new one can be, whatever their clocks show, as long as they run equally fast.
3. Only a write on the version that was read counts, so that of two replicas who both saw the Lease
   free one gets it.
4. A new holder first makes sure that it has seen all that the old one wrote. A replica
   that cannot be sure that its own record was never broken is a new holder.
5. A process is a holder of its own: started again under the same URL, it waits for the end of the
   term of its predecessor, of which a last request may still be in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kube.objects import Lease

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Election", "Move", "Term", "identity_of", "url_of"]

BEGIN_SHARE = 2 / 3
"""Share of the duration in which the holder may begin a bind: client-go's renewDeadline of 10 s to
a leaseDuration of 15 s."""


SEPARATOR = "#"
"""Between the URL and the process in the Lease's holderIdentity."""


def identity_of(url: str, process: str) -> str:
    """What the Lease calls a process that others reach under this URL."""
    return f"{url}{SEPARATOR}{process}"


def url_of(identity: str) -> str:
    """Where others reach the process that the Lease calls so."""
    return identity.partition(SEPARATOR)[0]


class Move(Enum):
    """What to do about the Lease. READ: it is not known as it is now."""

    READ = "read"
    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Term:
    """The time for which this replica holds the Lease, by the monotonic clock."""

    may_begin_until_s: float
    ends_s: float

    @classmethod
    def since(cls, renewed_s: float, duration_s: float) -> Term:
        """The term after a renewal that was begun at this time."""
        return cls(renewed_s + BEGIN_SHARE * duration_s, renewed_s + duration_s)


class Election:
    """What this replica, `identity`, knows of the Lease."""

    def __init__(self, namespace: str, name: str, *, identity: str, duration_s: int) -> None:
        self.namespace = namespace
        self.name = name
        self.identity = identity
        self._duration_s = duration_s
        self._lease: Lease | None = None
        self._renewed_seen_s = 0.0
        self._must_read = True

    @property
    def holder(self) -> str:
        """Who holds the Lease, as far as we know; empty where it has no holder."""
        return "" if self._lease is None else self._lease.holder

    def see(self, lease: Lease | None, now_s: float) -> None:
        """The Lease as it was read or written just now."""
        before = self._lease
        if (
            lease is None
            or before is None
            or (before.holder, before.renewed_at) != (lease.holder, lease.renewed_at)
        ):
            self._renewed_seen_s = now_s
        self._lease = lease
        self._must_read = False

    def see_changed(self) -> None:
        """The Lease is not as it was read; it is unknown until it is read again."""
        self._must_read = True

    def move(self, now_s: float) -> Move:
        """What to do now."""
        lease = self._lease
        if self._must_read:
            return Move.READ
        if lease is None:
            return Move.CREATE
        if lease.holder == self.identity:
            return Move.RENEW
        lasts_s = max(lease.duration_s, 1)
        if not lease.holder or now_s - self._renewed_seen_s >= lasts_s:
            return Move.TAKE
        return Move.WAIT

    def next_lease(self, wall: datetime) -> Lease:
        """The Lease to write in order to create, take or renew it."""
        lease = self._lease
        if lease is None:
            return Lease(self.namespace, self.name, self.identity, self._duration_s, wall, wall, 0)
        if lease.holder == self.identity:
            return replace(lease, duration_s=self._duration_s, renewed_at=wall)
        return replace(
            lease,
            holder=self.identity,
            duration_s=self._duration_s,
            acquired_at=wall,
            renewed_at=wall,
            n_transitions=lease.n_transitions + 1,
        )

    def released(self, wall: datetime) -> Lease | None:
        """The Lease to write at the end, None where it is not ours: no replica has to wait."""
        if self._lease is None or self._lease.holder != self.identity:
            return None
        return replace(self._lease, holder="", duration_s=1, renewed_at=wall)
