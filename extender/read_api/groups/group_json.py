"""One group as its body: its members in order, their counts, their domain and what they are worth.

What it is made of is a value (`GroupFacts`), so that the body of equal facts is made once. It reads
no state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, get_args

from extender.groups import value_json
from extender.groups.planning import common_domain
from extender.protocol import Reason
from extender.read_api.figures import rounded
from extender.read_api.groups.bodies import GroupBody, GroupMember, GroupState, GroupWait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from extender.groups import GroupStatus, MemberStatus
    from extender.read_api.placed_members import GroupKey, PlacedMember
    from topology.groups import GroupValue

__all__ = ["MAX_MEMBERS", "GroupFacts", "WaitingMember", "group_body"]

MAX_MEMBERS = 512
"""Members that are listed of a group: some 70 KB. Groups have 9,999 at most."""
_STATES: tuple[GroupState, ...] = get_args(GroupState)


class WaitingMember(NamedTuple):
    """A pending pod of a group that `GroupStatus` does not name: its members wait for no other."""

    uid: str
    name: str
    rank: int | None
    size_gpus: int | None
    since_s: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What is known of a group.

    `placed` are the members with devices on a node, claimed ones too. `status` is None where none
    waits that others wait for. `size` is None where no member that is known says it.
    """

    key: GroupKey
    placed: Mapping[str, PlacedMember]
    status: GroupStatus | None
    waiting: Sequence[WaitingMember]
    size: int | None

    def is_same(self, other: GroupFacts) -> bool:
        """Whether the JSON of both is equal, but for what depends on other nodes."""
        return (
            self.placed is other.placed
            and self.waiting == other.waiting
            and self.size == other.size
            and self.status == other.status
        )


def group_body(facts: GroupFacts, value: GroupValue | None) -> GroupBody:
    """The group; `value` is that of its members with a node, None where unknown."""
    members = sorted(_members(facts), key=_order)
    n_of = Counter(one["state"] for one in members)
    status = facts.status
    n_missing = 0 if status is None else status.n_missing
    state = "waiting" if n_missing or not members else members[0]["state"]
    level, domain = _domain(facts.placed.values())
    return {
        "namespace": facts.key[0],
        "name": facts.key[1],
        "state": state,
        "size": facts.size,
        "n_here": len(members),
        "n_claimed": n_of["claimed"],
        "n_bound": n_of["bound"],
        "n_missing": n_missing,
        **_why(facts, is_waiting=state == "waiting"),
        "first_since_unix_s": _first_since(members),
        "complete_since_unix_s": None if status is None else rounded(status.complete_s),
        "bound_since_unix_s": _bound_since(members) if state == "bound" else None,
        "level": level,
        "domain": domain,
        "n_nodes": len({one["node"] for one in members if one["node"] is not None}),
        "n_gpus": sum(one["size_gpus"] or 0 for one in members),
        **value_json(value),
        "members": members[:MAX_MEMBERS],
        "members_left_out": max(len(members) - MAX_MEMBERS, 0),
    }


def _order(one: GroupMember) -> tuple[int, bool, int, str, str]:
    """Those that wait first, each by rank, then by name."""
    rank = one["rank"]
    return _STATES.index(one["state"]), rank is None, rank or 0, one["name"], one["uid"]


def _members(facts: GroupFacts) -> Iterator[GroupMember]:
    """Every member once. A status is newer than what the nodes' accounts have shown."""
    shown: set[str] = set()
    for one in () if facts.status is None else facts.status.members:
        shown.add(one.uid)
        claimed = None if one.node is None else facts.placed.get(one.uid)
        since_s = one.since_s if claimed is None else claimed.since_s
        state: GroupState = "waiting" if one.node is None else "claimed"
        yield _member(state, one, one.size_gpus, since_s, node=one.node, placed=claimed)
    for other in facts.waiting:
        if other.uid not in shown and other.uid not in facts.placed:
            shown.add(other.uid)
            yield _member("waiting", other, other.size_gpus, other.since_s)
    for uid, member in facts.placed.items():
        if uid not in shown:
            state = "bound" if member.is_bound else "claimed"
            size = len(member.plan.ids)
            yield _member(state, member, size, member.since_s, node=member.node, placed=member)


def _member(  # noqa: PLR0913 - what differs between the three kinds of members
    state: GroupState,
    one: MemberStatus | WaitingMember | PlacedMember,
    size_gpus: int | None,
    since_s: float | None,
    *,
    node: str | None = None,
    placed: PlacedMember | None = None,
) -> GroupMember:
    return {
        "name": one.name,
        "uid": one.uid,
        "rank": one.rank,
        "state": state,
        "node": node,
        "gpus": None if placed is None or placed.gpus is None else list(placed.gpus),
        "size_gpus": size_gpus,
        "since_unix_s": rounded(since_s),
    }


def _why(facts: GroupFacts, *, is_waiting: bool) -> GroupWait:
    """Why members wait; of those that wait for no other the first one's reason."""
    reason, detail = None, ""
    if is_waiting and facts.status is not None:
        reason, detail = facts.status.reason, facts.status.detail
        if reason is Reason.GROUP_WAITING and not facts.status.n_missing:
            reason = Reason.GROUP_PLACING  # as filter says from its next plan on
    elif is_waiting and facts.waiting:
        reason = min(facts.waiting, key=lambda one: one.since_s).reason
    return {
        "reason": None if reason is None else reason.value,
        "reason_label": None if reason is None else reason.label,
        "detail": detail or None,
    }


def _first_since(members: Sequence[GroupMember]) -> float | None:
    waits = (one["since_unix_s"] for one in members if one["state"] == "waiting")
    return min((since_s for since_s in waits if since_s is not None), default=None)


def _bound_since(members: Sequence[GroupMember]) -> float | None:
    """When the last one was bound; None where that is not known of one."""
    known = [since_s for one in members if (since_s := one["since_unix_s"]) is not None]
    return max(known) if len(known) == len(members) else None


def _domain(placed: Iterable[PlacedMember]) -> tuple[str | None, str | None]:
    """Level and name of the nearest domain that holds all these members' nodes."""
    paths = {one.node: one.path for one in placed}
    level, *names = common_domain(list(paths.values())) or ("",)
    return (level, "/".join(names)) if names else (None, None)
