"""Sizes of groups that stand on another object: a Job, a JobSet, a PodGroup.

A pod of such a group has no size until its owner was read. Then the group has the size that was
read, or the pod is one without a group: the owner's pods are no gang, or it cannot be read. Pods
whose siblings were placed alone must not wait for these, so that this answer stays as long as pods
of the owner are tried. A size that was read stays as well, until another one is.

An owner is read once, and again where its pods have changed since (a Job's parallelism is lowered,
and pods are deleted), or after `OLD_S` where members still wait. One of which its pods do not say
the uid (a PodGroup) may be another object than before under the same name: after `RECHECK_S` it is
read again although its pods have no group, which changes nothing while one that was placed alone
runs, and read anew, as if for the first time, where no pod named it meanwhile and it has no member.
What is to be read, and what became of it, passes here; it makes no request and knows no member.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from extender.protocol import GroupOwner, PodRequest

__all__ = ["OwnerSizes"]

AGAIN_S = 5.0
"""Before an owner is read again of which pods came or went: mostly all of them do at once."""
OLD_S = 300.0
"""Before an owner with waiting members is read again, as kube-scheduler tries them at the latest:
the size of a PodGroup may change and no pod with it."""
RECHECK_S = 60.0
"""Before an owner that its pods name without a uid may be another object: as long as a right that
was missing is not tried again (`extender.watch.owner_reader`)."""
KEPT_S = 600.0
"""How long an owner is kept that no pod names any more: twice as long as kube-scheduler may leave a
pending pod alone."""
MAX_KEPT = 10_000
"""Owners kept; of more, those are dropped that were used longest ago."""


@dataclass(slots=True, eq=False)
class _Entry:
    """What is known of an owner. `size` is None where its pods are placed without a group."""

    used_s: float
    is_read: bool = False
    size: int | None = None
    read_s: float = 0.0


class OwnerSizes:
    """The owners of one engine's groups. `reads`: whether there is what reads them at all."""

    def __init__(self, *, reads: bool = True) -> None:
        self._reads = reads
        self._entries: OrderedDict[GroupOwner, _Entry] = OrderedDict()
        self._wanted: dict[GroupOwner, None] = {}
        self._reading: set[GroupOwner] = set()

    def resolve(self, request: PodRequest) -> PodRequest:
        """The pod with the size of its group, or without a group, as far as that is known."""
        owner = request.group_owner
        if owner is None or request.group is None:
            return request
        entry = self._entries.get(owner)
        if not self._reads or (entry is not None and entry.is_read and entry.size is None):
            return replace(request, group=None, group_owner=None, group_floor_gbytes_per_s=None)
        if entry is None or entry.size is None:
            return request
        return replace(request, group=replace(request.group, size=entry.size))

    def use(
        self, request: PodRequest, now_s: float, is_needed: Callable[[GroupOwner], bool]
    ) -> PodRequest:
        """The same of a pod that was seen or tried: its owner is read where that is due.

        `is_needed`: whether a group has members, that wait or are bound.
        """
        owner = request.group_owner
        if owner is not None and self._reads:
            entry = self._entries.get(owner)
            if entry is None or (_may_be_another(owner, entry, now_s) and not is_needed(owner)):
                entry = self._entries[owner] = _Entry(now_s)
                self._wanted[owner] = None
            elif (
                entry.is_read
                and entry.read_s + _again_after_s(owner, entry) <= now_s
                and owner not in self._reading
            ):
                self._wanted[owner] = None
            entry.used_s = now_s
            self._entries.move_to_end(owner)
        return self.resolve(request)

    def pods_changed(self, owner: GroupOwner) -> None:
        """A pod of a group came or went; what an owner says that is being read may be older."""
        entry = self._entries.get(owner)
        if entry is not None and entry.size is not None:
            self._wanted[owner] = None

    def take(self, now_s: float, is_needed: Callable[[GroupOwner], bool]) -> list[GroupOwner]:
        """The owners that are to be read now: each is handed out until `read` is called for it."""
        taken: list[GroupOwner] = []
        for owner in tuple(self._wanted):
            entry = self._entries.get(owner)
            is_sized = entry is not None and entry.size is not None
            if entry is None or (is_sized and not is_needed(owner)):
                del self._wanted[owner]
            elif owner not in self._reading and (
                not entry.is_read or entry.read_s + AGAIN_S <= now_s
            ):
                del self._wanted[owner]
                self._reading.add(owner)
                taken.append(owner)
        return taken

    def read(
        self, owner: GroupOwner, size: int | None, now_s: float, *, runs_alone: bool = False
    ) -> bool:
        """An owner was read, or cannot be (None); whether that changes what its pods are.

        `runs_alone`: a pod has a node that was placed without the group.
        """
        self._reading.discard(owner)
        entry = self._entries.get(owner)
        if entry is None:
            return False
        before = entry.is_read, entry.size
        entry.is_read, entry.read_s = True, now_s
        stays_alone = entry.size is None and (owner.uid or runs_alone)
        if before[0] and (size is None or stays_alone):
            return False
        entry.size = size
        return (True, size) != before

    def expire(self, now_s: float, is_needed: Callable[[GroupOwner], bool]) -> None:
        """Forget the owners that no pod has named for long; not those whose members wait."""
        for _ in range(len(self._entries)):
            owner, entry = next(iter(self._entries.items()))
            if entry.used_s + KEPT_S > now_s and len(self._entries) <= MAX_KEPT:
                return
            if is_needed(owner):
                entry.used_s = now_s
                self._entries.move_to_end(owner)
            else:
                del self._entries[owner]
                self._wanted.pop(owner, None)


def _may_be_another(owner: GroupOwner, entry: _Entry, now_s: float) -> bool:
    """Whether the size may be that of an object that is gone, and of which no pod is left."""
    return not owner.uid and entry.size is not None and entry.used_s + RECHECK_S <= now_s


def _again_after_s(owner: GroupOwner, entry: _Entry) -> float:
    """How old a reading may be of which a pod is seen or tried."""
    if entry.size is not None:
        return OLD_S
    return math.inf if owner.uid else RECHECK_S
