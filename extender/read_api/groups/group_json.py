"""One group as JSON: its members in order, their counts, their domain and what they are worth.

What it is made of is a value (`GroupFacts`), so that the JSON of equal facts is made once. It reads
no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from extender.groups import value_json
from extender.groups.planning import common_domain
from extender.protocol import Reason
from extender.read_api.figures import rounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from extender.groups import GroupStatus
    from extender.read_api.figures import Json
    from extender.read_api.placed_members import GroupKey, PlacedMember
    from topology.groups import GroupValue

__all__ = ["MAX_MEMBERS", "GroupFacts", "WaitingMember", "group_json"]

MAX_MEMBERS = 512
"""Members that are listed of a group: some 70 KB. Groups have 9,999 at most."""
_WAITING, _CLAIMED, _BOUND = "waiting", "claimed", "bound"
_STATES = _WAITING, _CLAIMED, _BOUND


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


class _Row(NamedTuple):
    """A member as it is shown."""

    state: str
    rank: int | None
    name: str
    uid: str
    size_gpus: int | None
    since_s: float | None
    node: str | None = None
    gpus: tuple[int, ...] | None = None

    @property
    def order(self) -> tuple[int, bool, int, str, str]:
        """Those that wait first, each by rank, then by name."""
        return (
            _STATES.index(self.state),
            self.rank is None,
            self.rank or 0,
            self.name,
            self.uid,
        )

    def json(self) -> Json:
        """The member's fields."""
        return {
            "name": self.name,
            "uid": self.uid,
            "rank": self.rank,
            "state": self.state,
            "node": self.node,
            "gpus": None if self.gpus is None else list(self.gpus),
            "size_gpus": self.size_gpus,
            "since_unix_s": rounded(self.since_s),
        }


def group_json(facts: GroupFacts, value: GroupValue | None) -> Json:
    """The group's fields; `value` is that of its members with a node, None where unknown."""
    rows = sorted(_rows(facts), key=lambda row: row.order)
    n_of = {state: sum(row.state == state for row in rows) for state in _STATES}
    status = facts.status
    n_missing = 0 if status is None else status.n_missing
    state = _WAITING if n_missing or not rows else rows[0].state
    level, domain = _domain(facts.placed.values())
    return {
        "namespace": facts.key[0],
        "name": facts.key[1],
        "state": state,
        "size": facts.size,
        "n_here": len(rows),
        "n_claimed": n_of[_CLAIMED],
        "n_bound": n_of[_BOUND],
        "n_missing": n_missing,
        **_why(facts, is_waiting=state == _WAITING),
        "first_since_unix_s": _first_since(rows),
        "complete_since_unix_s": None if status is None else rounded(status.complete_s),
        "bound_since_unix_s": _bound_since(rows) if state == _BOUND else None,
        "level": level,
        "domain": domain,
        "n_nodes": len({row.node for row in rows if row.node is not None}),
        "n_gpus": sum(row.size_gpus or 0 for row in rows),
        **value_json(value),
        "members": [row.json() for row in rows[:MAX_MEMBERS]],
        "members_left_out": max(len(rows) - MAX_MEMBERS, 0),
    }


def _rows(facts: GroupFacts) -> Iterator[_Row]:
    """Every member once. A status is newer than what the nodes' accounts have shown."""
    shown: set[str] = set()
    for one in () if facts.status is None else facts.status.members:
        shown.add(one.uid)
        row = _Row(_WAITING, one.rank, one.name, one.uid, one.size_gpus, one.since_s)
        if one.node is not None:
            claimed = facts.placed.get(one.uid)
            row = row._replace(state=_CLAIMED, node=one.node)
            if claimed is not None:
                row = row._replace(gpus=claimed.gpus, since_s=claimed.since_s)
        yield row
    for other in facts.waiting:
        if other.uid not in shown and other.uid not in facts.placed:
            shown.add(other.uid)
            yield _Row(_WAITING, other.rank, other.name, other.uid, other.size_gpus, other.since_s)
    for uid, member in facts.placed.items():
        if uid not in shown:
            state = _BOUND if member.is_bound else _CLAIMED
            size = len(member.plan.ids)
            row = _Row(state, member.rank, member.name, uid, size, member.since_s)
            yield row._replace(node=member.node, gpus=member.gpus)


def _why(facts: GroupFacts, *, is_waiting: bool) -> Json:
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


def _first_since(rows: Sequence[_Row]) -> float | None:
    waits = (row.since_s for row in rows if row.state == _WAITING)
    return rounded(min((since_s for since_s in waits if since_s is not None), default=None))


def _bound_since(rows: Sequence[_Row]) -> float | None:
    """When the last one was bound; None where that is not known of one."""
    known = [row.since_s for row in rows if row.since_s is not None]
    return rounded(max(known)) if len(known) == len(rows) else None


def _domain(placed: Iterable[PlacedMember]) -> tuple[str | None, str | None]:
    """Level and name of the nearest domain that holds all these members' nodes."""
    paths = {one.node: one.path for one in placed}
    level, *names = common_domain(list(paths.values())) or ("",)
    return (level, "/".join(names)) if names else (None, None)
