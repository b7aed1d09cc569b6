"""Events about groups: who is missing or differs, why there is no room, where one was placed.

Each is about one member, the first by rank. What a group waits for is said once it has waited for
a while, and then again at long intervals, so that a group costs few Events however many members it
has. Of an extender beside a kube-scheduler that does not lead nothing is said: filter is not called
there, and why a group waits is not known. It looks at the groups after each batch of changes; it
decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from extender.observe.events import EventReason, Note
from extender.protocol import Reason
from kube.objects import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from extender.groups import GroupKey, GroupOutcome, GroupStatus
    from topology.groups import GroupValue

__all__ = ["GroupReports"]

WAITS_S = 60.0
"""How long members are missing before an Event says so: a Job creates 512 pods in some 30 s."""
NO_ROOM_S = 10.0
"""How long a complete group has no place before an Event says so, or one whose members differ."""
AGAIN_S = 600.0
"""Before what a group waits for is said again."""
LOOK_S = 1.0
"""Between two looks at the groups that wait."""
TRICKLE_S = 30.0
"""A controller that creates all members at once needs less between the first and the last."""
_WAITING, _DIFFERS = EventReason.GROUP_WAITING, EventReason.GROUP_DIFFERS
_NO_PLACE = {
    Reason.GROUP_NO_ROOM: EventReason.GROUP_HAS_NO_ROOM,
    Reason.GROUP_NEVER: EventReason.GROUP_HAS_NO_ROOM,
    Reason.GROUP_ONE_MODEL: EventReason.GROUP_HAS_NO_ROOM,
    Reason.GROUP_MODEL_NEVER: EventReason.GROUP_HAS_NO_ROOM,
    Reason.GROUP_TOO_SLOW: EventReason.GROUP_HAS_NO_ROOM,
    Reason.GROUP_NOT_BOUND: EventReason.GROUP_NOT_BOUND,
}
"""What is said of a complete group without a place."""


class ReportedGroups(Protocol):
    """What is needed of `extender.groups.GroupReadings`."""

    def is_placing(self, now_s: float) -> bool:
        """Whether this replica places groups, as far as it can know."""
        ...

    def take_outcomes(self) -> Iterable[GroupOutcome]:
        """What became of groups since the last call."""
        ...

    def statuses(self) -> Iterator[GroupStatus]:
        """The groups with members that wait."""
        ...


@dataclass(eq=False)
class GroupReports:
    """Looks at `groups` and calls `record` with what users should know.

    `clock` is the engine's time. `on_outcome` gets each outcome, with the seconds since the group
    was complete, None where that is not known.
    """

    groups: ReportedGroups
    record: Callable[[Note], None]
    clock: Callable[[], float]
    on_outcome: Callable[[GroupOutcome, float | None], None]
    _said_s: dict[GroupKey, tuple[Reason | None, float]] = field(
        init=False, default_factory=dict["GroupKey", "tuple[Reason | None, float]"]
    )
    _looked_s: float = field(init=False, default=0.0)

    def look(self) -> None:
        """Report what there is to say; cheap where that is nothing."""
        now_s = self.clock()
        for outcome in self.groups.take_outcomes():
            since_s = outcome.complete_s
            self.on_outcome(outcome, None if since_s is None else now_s - since_s)
            self.record(_note(outcome))
        if now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        statuses = list(self.groups.statuses()) if self.groups.is_placing(now_s) else []
        said_s, self._said_s = self._said_s, {}
        for group in statuses:
            said = said_s.get(group.key)
            note = _due(group, said, now_s)
            if note is not None:
                said = group.reason, now_s
                self.record(note)
            if said is not None:
                self._said_s[group.key] = said


def _first(group: GroupStatus) -> ObjectKey:
    """The member that is named: the first by rank."""
    first = group.members[0]
    return ObjectKey(group.key[0], first.name, first.uid)


def _due(group: GroupStatus, said: tuple[Reason | None, float] | None, now_s: float) -> Note | None:
    """What is to be said of a group now; `said` is why it waited when that was last said."""
    if not group.members or group.reason is None or group.n_claimed:
        return None
    if said is not None and said[0] is group.reason and now_s < said[1] + AGAIN_S:
        return None
    about = _first(group)
    since_s = min(one.since_s for one in group.members)
    if group.reason is Reason.GROUP_DIFFERS:  # no size is the group's then
        due_s, note = since_s + NO_ROOM_S, Note(about, _DIFFERS, _who_differs(group))
    elif group.n_missing:
        due_s, note = since_s + WAITS_S, Note(about, _WAITING, _who_is_missing(group))
    elif group.reason in _NO_PLACE:
        due_s = (group.complete_s or since_s) + NO_ROOM_S
        note = Note(about, _NO_PLACE[group.reason], _why_no_room(group))
    else:
        return None
    return note if now_s >= due_s else None


def _who_is_missing(group: GroupStatus) -> str:
    text = f"{group.n_here} of {group.size} members of {group.title} are here"
    times = [one.since_s for one in group.members]
    if len(group.members) == 1 or max(times) - min(times) >= TRICKLE_S:
        text += "; does its controller create them one by one?"
    return text


def _who_differs(group: GroupStatus) -> str:
    return f"members of {group.title} differ, and none is placed: {group.detail}"


def _why_no_room(group: GroupStatus) -> str:
    sizes = sorted({one.size_gpus for one in group.members}, reverse=True)
    of = " and ".join(str(size) for size in sizes)
    why = group.detail or (group.reason.value if group.reason else "")
    return f"{len(group.members)} members of {of} GPU{'s' if sizes[0] > 1 else ''}; {why}"


def _note(outcome: GroupOutcome) -> Note:
    about = ObjectKey(outcome.key[0], outcome.name, outcome.uid)
    if outcome.is_whole:
        return Note(about, EventReason.GROUP_PLACED, _where(outcome))
    title = "/".join(outcome.key)
    message = (
        f"{outcome.n_bound} of {len(outcome.nodes)} members of {title} are bound: Bindings of the "
        "others came to nothing; the members that replace them are placed near these"
    )
    return Note(about, EventReason.GROUP_PARTIAL, message)


def _where(outcome: GroupOutcome) -> str:
    n_nodes = len(set(outcome.nodes.values()))
    domain = f"{outcome.level} {outcome.domain}".strip() if outcome.domain else ""
    parts = [domain, f"{n_nodes} node{'s' if n_nodes > 1 else ''}", _speed(outcome.value)]
    return ", ".join(part for part in parts if part)


def _speed(value: GroupValue | None) -> str:
    speed = None if value is None else value.gbytes_per_s
    return f"{speed:.0f} GB/s all-reduce predicted" if speed else ""
