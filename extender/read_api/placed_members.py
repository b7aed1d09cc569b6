"""The members of groups that have devices on a node, by group: which, where, and since when.

A node's entry names those on its node (`extender.read_api.node_entry`); here they are put together
for the whole cluster, as nodes change. A group is known by the plans of its members, so that groups
of pods without a plan are not here. It never looks at pods that wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from extender.read_api.pacing import paced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from extender.snapshot import MachineType
    from topology.annotations import Plan
    from topology.groups import DomainPath

__all__ = ["GroupKey", "MembersByGroup", "PlacedMember", "members_after"]

GroupKey: TypeAlias = "tuple[str, str]"
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """A member of group `key` on a node. `gpus` are indices, None where it is not known which.

    `is_bound`: not while its devices are only claimed, or its binding is in flight. `path` are the
    domains of its node, `machine` its type there; what these decide changes with them. `since_s` is
    when it was first seen so, None where that was before the first look.
    """

    key: GroupKey
    uid: str
    name: str
    rank: int | None
    node: str
    gpus: tuple[int, ...] | None
    is_bound: bool
    plan: Plan
    path: DomainPath
    machine: MachineType | None
    since_s: float | None = field(default=None, compare=False)


MembersByGroup: TypeAlias = "Mapping[GroupKey, Mapping[str, PlacedMember]]"
"""Members by uid, for each group. The members of a group that did not change are the same object.
"""


async def members_after(
    before: MembersByGroup,
    changed: Iterable[tuple[Sequence[PlacedMember], Sequence[PlacedMember]]],
    now_s: float | None,
) -> MembersByGroup:
    """The members after nodes changed: those that each node had, and those that it has.

    `now_s` None: the first look. O(groups), and the members of groups that changed.
    """
    gone: dict[str, PlacedMember] = {}
    here: dict[str, PlacedMember] = {}
    async for olds, news in paced(changed):
        gone.update((one.uid, one) for one in olds)
        here.update((one.uid, one) for one in news)
    groups, opened = dict(before), dict[GroupKey, dict[str, PlacedMember]]()

    def members(key: GroupKey) -> dict[str, PlacedMember]:
        if key not in opened:
            opened[key] = dict(groups.get(key, ()))
            groups[key] = opened[key]
        return opened[key]

    async for uid, one in paced(gone.items()):
        if uid not in here or here[uid].key != one.key:
            members(one.key).pop(uid, None)
    async for uid, one in paced(here.items()):
        old = before.get(one.key, {}).get(uid)
        if old != one:
            is_as_before = old is not None and old.is_bound == one.is_bound
            since_s = old.since_s if old is not None and is_as_before else now_s
            members(one.key)[uid] = replace(one, since_s=since_s)
    for key, left in opened.items():
        if not left:
            del groups[key]
    return groups
