"""Where the bound members of groups are, and where those were that ended lately.

A replacement belongs on the node of the member that it replaces, or near the others. While some
members are bound, the nodes of those that ended are remembered for `FORMER_S`; once none is, the
group starts over, wherever it fits best, unless the others of a group that was never whole wait
still. It knows no pod that waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from extender.groups.members.group import GroupKey

__all__ = ["BoundMembers"]

FORMER_S = 600.0
"""How long a node is remembered that a member had. A Job waits 10 s to 6 min before it replaces a
failed pod (Kubernetes 1.36, job_controller.go, DefaultJobPodFailureBackOff and MaxJob...)."""
MAX_FORMER = 10_000
"""Nodes remembered for all groups together; the oldest are dropped."""


@dataclass(slots=True, eq=False)
class _Places:
    """The nodes of one group's bound members by uid, and of ended ones since when, if known.

    `n_ended` counts all that ended.
    """

    nodes: dict[str, str] = field(default_factory=dict[str, str])
    former: dict[str, float | None] = field(default_factory=dict[str, "float | None"])
    n_ended: int = 0


class BoundMembers:
    """The bound members of all groups."""

    def __init__(self) -> None:
        self._keys: dict[str, GroupKey] = {}
        self._places: dict[GroupKey, _Places] = {}
        self._n_former = 0

    def add(self, uid: str, key: GroupKey, node: str) -> bool:
        """A member has a node; False where that is known."""
        places = self._places.setdefault(key, _Places())
        if places.nodes.get(uid) == node:
            return False
        self._keys[uid] = key
        places.nodes[uid] = node
        self._forget_former(places, node)
        return True

    def end(self, uid: str, *, starts_over: bool = True) -> GroupKey | None:
        """A pod ended, or is gone; returns the group that it was a member of.

        `starts_over`: if it was the last one, nothing is remembered of the group.
        """
        key = self._keys.pop(uid, None)
        if key is None:
            return None
        places = self._places[key]
        node = places.nodes.pop(uid)
        places.n_ended += 1
        if starts_over and not places.nodes:
            self.start_over(key)
        elif node not in places.former:
            places.former[node] = None
            self._n_former += 1
            self._trim()
        return key

    def start_over(self, key: GroupKey) -> None:
        """Forget the ended members of a group of which none is bound."""
        places = self._places.get(key)
        if places is not None and not places.nodes:
            self._n_former -= len(places.former)
            del self._places[key]

    def expire(self, now_s: float) -> None:
        """Nodes of members that ended long ago are forgotten."""
        if not self._n_former:
            return
        for places in self._places.values():
            for node, since_s in tuple(places.former.items()):
                if since_s is None:
                    places.former[node] = now_s
                elif since_s + FORMER_S <= now_s:
                    self._forget_former(places, node)

    def key_of(self, uid: str) -> GroupKey | None:
        """The group of a bound member; None for every other pod."""
        return self._keys.get(uid)

    def count(self, key: GroupKey) -> int:
        """How many members of a group are bound."""
        places = self._places.get(key)
        return 0 if places is None else len(places.nodes)

    def has_begun(self, key: GroupKey) -> bool:
        """Whether members are bound, or were of a group that has not started over."""
        return key in self._places

    def n_ever(self, key: GroupKey) -> int:
        """How many members were bound since the group began."""
        places = self._places.get(key)
        return 0 if places is None else len(places.nodes) + places.n_ended

    def by_uid(self, key: GroupKey) -> Mapping[str, str]:
        """The nodes of the bound members."""
        places = self._places.get(key)
        return {} if places is None else dict(places.nodes)

    def nodes(self, key: GroupKey) -> Sequence[str]:
        """The nodes alone."""
        return tuple(self.by_uid(key).values())

    def former_nodes(self, key: GroupKey) -> Sequence[str]:
        """The nodes of members that ended lately and were not replaced there."""
        places = self._places.get(key)
        return () if places is None else tuple(places.former)

    def _forget_former(self, places: _Places, node: str) -> None:
        if node in places.former:
            del places.former[node]
            self._n_former -= 1

    def _trim(self) -> None:
        if self._n_former <= MAX_FORMER:
            return
        places = next(one for one in self._places.values() if one.former)
        self._forget_former(places, next(iter(places.former)))
