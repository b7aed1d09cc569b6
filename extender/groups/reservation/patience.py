"""Which nodes to reserve for groups that find no room, and until when.

Smaller pods that start in between take what a large group waits for, so that under load it may wait
without end. With a patience, nodes of one domain are reserved for a complete group that has found
no room for that long (`topology.groups.keep_nodes`, which chooses twice what it needs); those that
wait longest come first, higher priority before, and no more than `MOST_KEPT` groups have nodes at a
time, none of them the same. Pods that run go on, and none is evicted.

A reservation ends

1. when the group is placed, gone or incomplete, or GPUs are not what it lacks: it never fits, its
   members differ, or were not bound where they had a place;
2. when its nodes would not hold the group even if they were empty, and other nodes are chosen: a
   node is gone, the group has grown, kube-scheduler does not name a node that has room, or a node
   takes no new pod (`UNOFFERED_S`);
3. when no more members fit than before for `MOST_PATIENCES` times the patience: pods there do not
   end. Then other nodes are chosen, without those that did not come free. Where there are none, the
   group has no reservation for as long as the patience, so that others have their turn, and all
   nodes count again.

So the time is bounded: the number of members that fit grows at most as often as there are members.
After a restart nothing is reserved, and the time begins again when a plan first finds no room. Time
is an argument; replays repeat it. Complexity: a look at each group twice a second, at nodes for
each reservation every `LOOK_S`, and at those of all reservations for one group without nodes in
each look, with pauses of `RETRY_S` where no domain would hold it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from extender.groups.members.group import NO_ROOM, Stage
from extender.groups.near_members import near_members
from extender.groups.planning import common_domain, reservable
from extender.groups.reservation.reserved_nodes import Reservation
from topology.groups import MOST_KEPT, WaitingGroup, keep_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from extender.groups.members.group import Group, GroupKey
    from extender.groups.members.member_counts import MemberCounts
    from extender.groups.planning import JointPlanner, Reservable
    from extender.groups.reservation.reserved_nodes import ReservedNodes
    from extender.state import LiveCluster

__all__ = ["Patience"]

MOST_PATIENCES = 6.0
"""How many times the patience nodes stay reserved while no more members fit there: with jobs that
end at random within a mean time of the patience, 1 of 400 would run that long."""
LOOK_S = 5.0
"""Between two looks at what a reservation's nodes hold."""
UNOFFERED_S = 60.0
"""How long kube-scheduler may leave out a node that has room: it tries waiting pods again when
others end, and a call may be older than that. So long a node may be cordoned or not ready, too."""
RETRY_S = 60.0
"""Before nodes are looked for again for a group that no domain would hold."""


@dataclass(slots=True, eq=False)
class _Wait:
    """One group that has waited long.

    `left_out` are nodes that did not come free. Of a reservation: `group` is the one that has
    it, `n_room` the most members that fitted there, since `progress_s`; `unoffered_s` since
    when nodes with room are not named.
    """

    left_out: set[str] = field(default_factory=set[str])
    retry_s: float = 0.0
    group: Group | None = None
    n_room: int = 0
    progress_s: float = 0.0
    looked_s: float = 0.0
    unoffered_s: dict[str, float] = field(default_factory=dict[str, float])


class Patience:
    """Reserves nodes in `reserved`; with a patience of 0 s it does nothing."""

    def __init__(
        self,
        cluster: LiveCluster,
        planner: JointPlanner,
        counts: MemberCounts,
        reserved: ReservedNodes,
        *,
        patience_s: float,
    ) -> None:
        self._cluster = cluster
        self._planner = planner
        self._counts = counts
        self._reserved = reserved
        self._patience_s = patience_s
        self._waits: dict[GroupKey, _Wait] = {}

    def look(self, groups: Mapping[GroupKey, Group], now_s: float) -> None:
        """End the reservations that are over, and make those that are due."""
        if not self._patience_s:
            return
        for one in self._reserved.all():
            group = groups[one.key]
            if group.refusal not in NO_ROOM or self._counts.n_open(group) < 1:
                self.forget(one.key)
            elif group.priority != one.priority:
                self._reserved.put(replace(one, priority=group.priority))
        for one in self._reserved.all():
            self._review(groups[one.key], now_s)
        if len(self._reserved.all()) < MOST_KEPT:
            due = [one for one in groups.values() if self._is_due(one, now_s)]
            if due:
                self._reserve(min(due, key=_order), now_s)

    def forget(self, key: GroupKey) -> None:
        """A group waits no longer."""
        self._waits.pop(key, None)
        self._reserved.end(key)

    def _is_due(self, group: Group, now_s: float) -> bool:
        if group.no_room_s is None or group.no_room_s + self._patience_s > now_s:
            return False
        wait = self._waits.get(group.key)
        is_new = wait is None or (wait.group is None and wait.retry_s <= now_s)
        return is_new and self._counts.n_open(group) > 0

    # A reservation.

    def _review(self, group: Group, now_s: float) -> None:
        wait = self._waits[group.key]
        if group.at(Stage.CLAIMED, Stage.HELD, Stage.RELEASED):
            wait.progress_s = now_s
            return
        if now_s < wait.looked_s + LOOK_S:
            return
        wait.looked_s = now_s
        room = self._room(group)
        is_kept = self._are(self._reserved.nodes(group.key))
        n_open = self._counts.n_open(group)
        self._note_progress(wait, min(int(room.fits[is_kept].sum()), n_open), now_s)
        unoffered = self._unoffered(wait, room, is_kept, now_s)
        if int(room.fits_when_empty[is_kept].sum()) < n_open or unoffered:
            wait.left_out |= unoffered
            self._reserve(group, now_s)
        elif now_s >= wait.progress_s + MOST_PATIENCES * self._patience_s:
            is_full = room.fits < room.fits_when_empty
            stuck = is_kept & is_full if (is_kept & is_full).any() else is_kept
            wait.left_out |= self._names(stuck)
            self._reserve(group, now_s)

    def _note_progress(self, wait: _Wait, n_room: int, now_s: float) -> None:
        if n_room > wait.n_room:
            wait.n_room, wait.progress_s = n_room, now_s

    def _unoffered(
        self, wait: _Wait, room: Reservable, is_kept: NDArray[np.bool_], now_s: float
    ) -> set[str]:
        """The nodes that kube-scheduler has not named for long, though they have room."""
        names = sorted(self._names(is_kept & room.is_unoffered))
        wait.unoffered_s = {name: wait.unoffered_s.get(name, now_s) for name in names}
        return {name for name, at_s in wait.unoffered_s.items() if at_s + UNOFFERED_S <= now_s}

    def _reserve(self, group: Group, now_s: float) -> None:
        """Reserve nodes for a group, others than before; or none where no domain would hold it."""
        self._reserved.end(group.key)
        wait = self._waits.setdefault(group.key, _Wait())
        had_nodes, wait.group = wait.group is not None, None
        room = self._room(group)
        n_open = self._counts.n_open(group)
        mine = self._waiting(group, room, wait)
        others = [
            self._waiting(one.group, self._room(one.group), one)
            for one in self._waits.values()
            if one.group is not None
        ]
        kept = {one.title: one.nodes for one in self._reserved.all()}
        tree = self._cluster.domains.tree
        found = keep_nodes(tree, [*others, mine], kept, patience_s=self._patience_s)
        for one in self._reserved.all():
            if found[one.title] != one.nodes:  # what it has beyond its need is for this group
                self._reserved.put(self._with_nodes(one, found[one.title]))
        nodes = found.get(mine.name, frozenset())
        if not nodes:
            wait.left_out.clear()
            wait.retry_s = now_s + RETRY_S
            if had_nodes:
                group.no_room_s = now_s
            return
        wait.group, wait.progress_s, wait.looked_s = group, now_s, now_s
        wait.unoffered_s.clear()
        wait.n_room = min(int(room.fits[self._are(nodes)].sum()), n_open)
        made = Reservation(group.key, frozenset(), "", "", now_s, group.priority)
        self._reserved.put(self._with_nodes(made, nodes))

    def _with_nodes(self, one: Reservation, nodes: frozenset[str]) -> Reservation:
        """The reservation with other nodes, and the domain of these."""
        paths = (self._cluster.domains.path(node) for node in sorted(nodes))
        level, *domain = common_domain([path for path in paths if path is not None]) or ("",)
        return replace(one, nodes=nodes, level=level, domain="/".join(domain))

    def _waiting(self, group: Group, room: Reservable, wait: _Wait) -> WaitingGroup:
        shape = room.shape(self._counts.n_open(group), self._are(wait.left_out))
        return WaitingGroup("/".join(group.key), self._patience_s, shape, room.within)

    def _room(self, group: Group) -> Reservable:
        members = [(one.request, one.offer) for one in group.ordered]
        return reservable(
            self._cluster, self._planner, members, near_members(group, self._counts.bound)
        )

    def _are(self, nodes: set[str] | frozenset[str]) -> NDArray[np.bool_]:
        """Bool[n] by position in the tree: whether it is one of the nodes."""
        names = self._cluster.domains.tree.node_names
        return np.array([name in nodes for name in names], dtype=np.bool_)

    def _names(self, are: NDArray[np.bool_]) -> set[str]:
        names = self._cluster.domains.tree.node_names
        return {names[i] for i in are.nonzero()[0].tolist()}


def _order(group: Group) -> tuple[int, float, GroupKey]:
    """The higher priority first, then the group that has waited longest."""
    return -group.priority, group.no_room_s or 0.0, group.key
