"""What the routes of groups respond: the types that are built, encoded and described."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import with_config
from typing_extensions import TypedDict

from extender.groups import GroupFigures

__all__ = ["GroupBody", "GroupMember", "GroupState", "GroupWait"]


GroupState: TypeAlias = Literal["waiting", "claimed", "bound"]


class GroupWait(TypedDict):
    """Why members wait, and what the last plan found; null as in `GroupBody`."""

    reason: str | None
    reason_label: str | None
    detail: str | None


class GroupMember(TypedDict):
    """A member: `waiting` without a node, `claimed` while one is kept for it, or `bound` to it.

    `gpus` are null where it has none, and where it is not known which. `since_unix_s` is since when
    it waits; of the others since when it was seen at its node, null for the time before this
    extender started.
    """

    name: str
    uid: str
    rank: int | None
    state: GroupState
    node: str | None
    gpus: list[int] | None
    size_gpus: int | None
    since_unix_s: float | None


@with_config(defer_build=True)
class GroupBody(GroupWait, GroupFigures):
    """A group; its state is that of the member that is behind, `waiting` also where one is missing.

    - `size`: how many members with GPUs there must be before any is bound; null where members do
      not wait for each other, and where no pod that is known says it.
    - `n_here`, of which `n_claimed` and `n_bound`; `n_missing` more must come.
    - `reason`, `reason_label`, `detail`: why members wait, and what the last plan found; null while
      none waits, and on a replica that does not place groups.
    - `first_since_unix_s`: since when the first of those waits that wait; `complete_since_unix_s`:
      since when none is missing; `bound_since_unix_s`: since when all have their node.
    - `level`, `domain`: the nearest network domain that holds all nodes of members, as its names
      from the widest; null where none is known to.
    - `gbytes_per_s`: the predicted all-reduce bandwidth of all members with a node together;
      `least_gbytes_per_s` is that less the stated error, which has one side.
    - `members`: those that wait first, each by rank; `members_left_out` more are not listed.
    """

    namespace: str
    name: str
    state: GroupState
    size: int | None
    n_here: int
    n_claimed: int
    n_bound: int
    n_missing: int
    first_since_unix_s: float | None
    complete_since_unix_s: float | None
    bound_since_unix_s: float | None
    level: str | None
    domain: str | None
    n_nodes: int
    n_gpus: int
    members: list[GroupMember]
    members_left_out: int
