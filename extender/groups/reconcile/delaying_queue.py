"""Which groups to reconcile now, and which at what time: the others cost nothing.

As client-go's delaying queue: a key is in it once. It knows keys and times. Why a group is to be
reconciled is for `extender.groups.groups`, what follows for `reconciler`.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extender.groups.members.group import GroupKey

__all__ = ["DelayingQueue"]


class DelayingQueue:
    """Keys of groups, some of them with a time."""

    def __init__(self) -> None:
        self._now: set[GroupKey] = set()
        self._later: list[tuple[float, GroupKey]] = []
        self._at_s: dict[GroupKey, float] = {}

    def add(self, key: GroupKey) -> None:
        """Reconcile a group next time."""
        self._now.add(key)

    def add_at(self, key: GroupKey, at_s: float) -> None:
        """Reconcile a group then, or earlier where that is known already; infinite for never."""
        if at_s < self._at_s.get(key, math.inf):
            self._at_s[key] = at_s
            heappush(self._later, (at_s, key))

    def take(self, now_s: float) -> set[GroupKey]:
        """The groups to reconcile now; O(those, and log of all that have a time)."""
        while self._later and self._later[0][0] <= now_s:
            at_s, key = heappop(self._later)
            if self._at_s.get(key) == at_s:  # else there is an earlier time by now
                del self._at_s[key]
                self._now.add(key)
        taken, self._now = self._now, set()
        return taken
