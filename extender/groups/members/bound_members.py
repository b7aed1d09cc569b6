"""Where the bound members of groups are, and where those were that ended lately.

A replacement belongs on the node of the member of its rank that ended, or near the others. While
some members are bound, nodes and ranks of those that ended are remembered for `FORMER_S`; once none
is, the group starts over, wherever it fits best, unless the others of a group that was never whole
wait still. It knows no pod that waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from extender.groups.members.group import GroupKey

__all__ = ["BoundMembers"]

FORMER_S = 600.0
"""How long an ended member is remembered. A Job waits 10 s to 6 min before it replaces a
failed pod (Kubernetes 1.36, job_controller.go, DefaultJobPodFailureBackOff and MaxJob...)."""
MAX_FORMER = 10_000
"""Ended members remembered for all groups together; the oldest are dropped."""


@dataclass(slots=True, eq=False)
class _Place:
    """The node of a member, its rank if it has one, and since when it has ended, if known."""

    node: str
    rank: int | None
    ended_s: float | None = None

    @property
    def key(self) -> int | str:
        """What a replacement has, too: the rank, or the node of a member without one."""
        return self.node if self.rank is None else self.rank


@dataclass(slots=True, eq=False)
class _Places:
    """The places of one group's bound members by uid, of ended ones by their key.

    `n_ended` counts all that ended.
    """

    bound: dict[str, _Place] = field(default_factory=dict[str, _Place])
    former: dict[int | str, _Place] = field(default_factory=dict["int | str", _Place])
    n_ended: int = 0


class BoundMembers:
    """The bound members of all groups."""

    def __init__(self) -> None:
        self._keys: dict[str, GroupKey] = {}
        self._places: dict[GroupKey, _Places] = {}
        self._n_former = 0

    def add(self, uid: str, key: GroupKey, node: str, rank: int | None = None) -> bool:
        """A member has a node; False where that is known. It is in no other group."""
        places = self._places.setdefault(key, _Places())
        known = places.bound.get(uid)
        if known is not None and known.node == node:
            return False
        self._keys[uid] = key
        place = places.bound[uid] = _Place(node, rank)
        self._forget_former(places, place.key)
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
        place = places.bound.pop(uid)
        places.n_ended += 1
        if starts_over and not places.bound:
            self.start_over(key)
        else:
            self._forget_former(places, place.key)
            places.former[place.key] = place
            self._n_former += 1
            self._trim()
        return key

    def start_over(self, key: GroupKey) -> None:
        """Forget the ended members of a group of which none is bound."""
        places = self._places.get(key)
        if places is not None and not places.bound:
            self._n_former -= len(places.former)
            del self._places[key]

    def expire(self, now_s: float) -> None:
        """Members that ended long ago are forgotten."""
        if not self._n_former:
            return
        for places in self._places.values():
            for place in tuple(places.former.values()):
                if place.ended_s is None:
                    place.ended_s = now_s
                elif place.ended_s + FORMER_S <= now_s:
                    self._forget_former(places, place.key)

    def key_of(self, uid: str) -> GroupKey | None:
        """The group of a bound member; None for every other pod."""
        return self._keys.get(uid)

    def count(self, key: GroupKey) -> int:
        """How many members of a group are bound."""
        places = self._places.get(key)
        return 0 if places is None else len(places.bound)

    def has_begun(self, key: GroupKey) -> bool:
        """Whether members are bound, or were of a group that has not started over."""
        return key in self._places

    def n_ever(self, key: GroupKey) -> int:
        """How many members were bound since the group began."""
        places = self._places.get(key)
        return 0 if places is None else len(places.bound) + places.n_ended

    def by_uid(self, key: GroupKey) -> Mapping[str, str]:
        """The nodes of the bound members."""
        places = self._places.get(key)
        bound = {} if places is None else places.bound
        return {uid: place.node for uid, place in bound.items()}

    def nodes(self, key: GroupKey) -> Sequence[str]:
        """The nodes alone."""
        return tuple(self.by_uid(key).values())

    def former_nodes(self, key: GroupKey) -> Sequence[str]:
        """The nodes of members that ended lately and were not replaced, each once."""
        return tuple(dict.fromkeys(place.node for place in self._former(key)))

    def former_by_rank(self, key: GroupKey) -> Mapping[int, str]:
        """The same nodes by the ranks that the members had."""
        places = self._former(key)
        return {place.rank: place.node for place in places if place.rank is not None}

    def _former(self, key: GroupKey) -> Sequence[_Place]:
        places = self._places.get(key)
        return () if places is None else tuple(places.former.values())

    def _forget_former(self, places: _Places, key: int | str) -> None:
        if places.former.pop(key, None) is not None:
            self._n_former -= 1

    def _trim(self) -> None:
        if self._n_former <= MAX_FORMER:
            return
        places = next(one for one in self._places.values() if one.former)
        self._forget_former(places, next(iter(places.former)))
