"""Reconciles the groups: plans those that are due, and says which members to wake.

It takes only groups of which something changed, or whose time has come. It keeps no member and no
bound pod.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from extender.groups.members.group import Stage
from extender.groups.reconcile.delaying_queue import DelayingQueue
from extender.groups.reconcile.round_robin import RoundRobin
from extender.groups.reconcile.waking import (
    MAX_ASKED,
    ask_for,
    next_wake_s,
    note_untried,
    wake_claimed,
    wake_outdated,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from extender.groups.claims import Claims
    from extender.groups.members.group import Group, GroupKey, Member
    from extender.groups.members.member_counts import MemberCounts
    from extender.groups.releases import Releases
    from extender.state import LiveCluster
    from topology.groups import DomainTree

__all__ = ["Reconciler"]

_MANY = 2**31
"""More devices than any group requests."""


class Reconciler:
    """Reconciles the groups of one engine.

    `unsettled` are groups of which something ends with time: claims, and members that no watch
    shows.
    """

    def __init__(
        self, cluster: LiveCluster, claims: Claims, releases: Releases, counts: MemberCounts
    ) -> None:
        self._cluster = cluster
        self._claims = claims
        self._releases = releases
        self._counts = counts
        self._queue = DelayingQueue()
        self._turns = RoundRobin()
        self._tree: DomainTree | None = None
        self.unsettled: dict[GroupKey, None] = {}

    def add(self, key: GroupKey) -> None:
        """Something changed of a group."""
        self._queue.add(key)

    def devices_freed(self, groups: Iterable[Group], n_devices: int) -> None:
        """So many devices came free at most: groups that found no room may have it now."""
        for group in groups:
            self._claims.freed(group, n_devices)
            if group.is_due:
                self._queue.add(group.key)

    def reconcile(self, groups: Mapping[GroupKey, Group], now_s: float) -> list[Member]:
        """Plan what is due; the members to wake."""
        if self._tree is not self._cluster.domains.tree:
            self._tree = self._cluster.domains.tree
            self.devices_freed(groups.values(), _MANY)  # other domains hold other groups
        found = [groups[key] for key in self._queue.take(now_s) if key in groups]
        found.sort(key=lambda one: one.order)
        self._turns.go(found, partial(self._plan, now_s=now_s), now_s)
        woken: list[Member] = []
        for group in found:
            if len(woken) >= MAX_ASKED and group.claims_end_s is None:
                self._queue.add(group.key)
            else:
                woken += self._wake(group, now_s)
        return woken

    def _plan(self, group: Group, now_s: float) -> int:
        n_claimed = len(group.at(Stage.CLAIMED, Stage.HELD))
        n_planned = self._claims.plan(group, self._counts.n_open(group) - n_claimed, now_s)
        # A claim that was lost may have kept bind calls waiting for one that is not needed.
        self._releases.settle(group, self._counts.n_open(group))
        self.unsettled[group.key] = None
        return n_planned

    def _wake(self, group: Group, now_s: float) -> list[Member]:
        """Who is to be woken now; when the group is next reconciled is then known."""
        is_complete = self._counts.is_complete(group)
        group.complete_s = (group.complete_s or now_s) if is_complete else None
        note_untried(group, now_s)
        woken = wake_claimed(group, now_s)
        if is_complete:
            woken += ask_for(group, now_s)
        woken += wake_outdated(group, now_s)
        planned_s = max(group.next_plan_s, self._turns.next_s) if group.is_due else math.inf
        asked_s = next_wake_s(group, is_complete=is_complete)
        self._queue.add_at(group.key, min(planned_s, asked_s))
        return woken
