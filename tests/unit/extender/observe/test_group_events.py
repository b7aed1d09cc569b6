"""What is said of groups, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from extender.groups import GroupOutcome, GroupStatus
from extender.groups.readings import MemberStatus
from extender.observe import GroupReports
from extender.observe.events import EventReason, Note
from extender.protocol import Reason
from kube.objects import ObjectKey
from tests.unit.extender.shells import FakeTime
from topology.groups import GroupLimit, GroupValue

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "ml", "train"
FIRST = ObjectKey("ml", "train-0", "u0")


def members(count: int, *, n_gpus: int = 8, apart_s: float = 0.0) -> tuple[MemberStatus, ...]:
    """Members without a node, the first of which is there since 100 s."""
    return tuple(
        MemberStatus(f"u{i}", f"train-{i}", 100.0 + i * apart_s, n_gpus, None) for i in range(count)
    )


WAITS = GroupStatus(KEY, {}, 4, members(3), Reason.GROUP_WAITING)
NO_ROOM = replace(
    WAITS,
    members=members(4),
    reason=Reason.GROUP_NO_ROOM,
    detail="the freest leaf (S12) has room for 3 of 4 members",
    complete_s=100.0,
)
VALUE = GroupValue(381.6, 274.8, GroupLimit.NIC)
PLACED = GroupOutcome(
    KEY, "u0", "train-0", {"u0": "n1", "u1": "n2"}, "leaf", "S12", VALUE, 90.0, n_bound=2
)


@dataclass
class Groups:
    """The groups, as a test sets them."""

    waiting: list[GroupStatus] = field(default_factory=list)
    outcomes: list[GroupOutcome] = field(default_factory=list)
    placing_from_s: float = 0.0

    def is_placing(self, now_s: float) -> bool:
        return now_s >= self.placing_from_s

    def take_outcomes(self) -> list[GroupOutcome]:
        taken, self.outcomes = self.outcomes, []
        return taken

    def statuses(self) -> Iterator[GroupStatus]:
        return iter(self.waiting)


@dataclass
class Reported:
    """Groups in a time, and what was reported of them."""

    groups: Groups = field(default_factory=Groups)
    time: FakeTime = field(default_factory=FakeTime)
    notes: list[Note] = field(default_factory=list)
    outcomes: list[tuple[GroupOutcome, float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reports = GroupReports(
            self.groups, self.notes.append, self.time, lambda *one: self.outcomes.append(one)
        )

    def until(self, end_s: float) -> list[tuple[float, str]]:
        """Look once a second until then: when what was said."""
        said = []
        while self.time.now_s < end_s:
            self.time.now_s += 1.0
            self.reports.look()
            said += [(self.time.now_s, note.message) for note in self.notes]
            self.notes.clear()
        return said


@pytest.fixture
def reported() -> Reported:
    """At 100 s."""
    return Reported()


def test_missing_members_are_told_after_a_minute_and_every_ten(reported):
    """Of one member, however many there are."""
    reported.groups.waiting = [WAITS]
    said = reported.until(1500.0)
    assert said == [
        (160.0, "3 of 4 members of ml/train are here"),
        (760.0, "3 of 4 members of ml/train are here"),
        (1360.0, "3 of 4 members of ml/train are here"),
    ]


@pytest.mark.parametrize(
    ("there", "asks"),
    [
        pytest.param(members(1), True, id="one alone"),
        pytest.param(members(3, apart_s=20.0), True, id="they trickle"),
        pytest.param(members(3, apart_s=1.0), False, id="created at once"),
    ],
)
def test_a_controller_that_creates_one_by_one_is_suspected(reported, there, asks):
    """Such a group is never complete."""
    reported.groups.waiting = [replace(WAITS, members=there)]
    ((_, message),) = reported.until(200.0)
    assert message.endswith("; does its controller create them one by one?") is asks


def test_bound_members_count_as_here(reported):
    """A replacement waits for others that are missing."""
    reported.groups.waiting = [replace(WAITS, members=members(1), bound={"x": "n1", "y": "n2"})]
    ((_, message),) = reported.until(200.0)
    assert message.startswith("3 of 4 members of ml/train are here")


def test_a_complete_group_without_room_says_how_much_there_is(reported):
    """After ten seconds, in which a plan may find a place."""
    reported.groups.waiting = [NO_ROOM]
    reported.time.now_s = 105.0
    ((at_s, message),) = reported.until(300.0)
    assert (at_s, message) == (
        110.0,
        "4 members of 8 GPUs; the freest leaf (S12) has room for 3 of 4 members",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"members": (*members(1, n_gpus=1), *members(1, n_gpus=2)), "size": 2},
            "2 members of 2 and 1 GPUs; the freest leaf (S12) has room for 3 of 4 members",
            id="sizes differ",
        ),
        pytest.param(
            {"detail": "devices were claimed twice", "reason": Reason.GROUP_NOT_BOUND},
            "4 members of 8 GPUs; devices were claimed twice",
            id="not bound",
        ),
        pytest.param(
            {"members": members(4, n_gpus=1), "detail": "", "reason": Reason.GROUP_TOO_SLOW},
            f"4 members of 1 GPU; {Reason.GROUP_TOO_SLOW.value}",
            id="no counts",
        ),
    ],
)
def test_sizes_and_reasons_are_named(reported, changes, message):
    """Whatever the plan said."""
    reported.groups.waiting = [replace(NO_ROOM, **changes)]
    reported.until(111.0)
    assert [said for _, said in reported.until(111.0)] == []
    again = Reported(reported.groups)
    assert [said for _, said in again.until(111.0)] == [message]


def test_members_that_differ_are_named(reported):
    """They wait for ever, and `GroupWaiting` would count members of two jobs as one group's."""
    detail = "train-0 states size 4, train-3 size 2"
    reported.groups.waiting = [replace(WAITS, reason=Reason.GROUP_DIFFERS, detail=detail)]
    notes: list[Note] = []
    reported.reports.record = notes.append
    reported.until(109.0)
    assert notes == []
    reported.until(1000.0)
    about = {(note.about, note.reason, note.message) for note in notes}
    message = f"members of ml/train differ, and none is placed: {detail}"
    assert about == {(FIRST, EventReason.GROUP_DIFFERS, message)}
    assert len(notes) == 2


def test_another_reason_is_said_at_once(reported):
    """A member that came makes the group complete, and there is no room."""
    reported.groups.waiting = [WAITS]
    assert len(reported.until(160.0)) == 1
    reported.groups.waiting = [replace(NO_ROOM, complete_s=160.0)]
    assert [at_s for at_s, _ in reported.until(300.0)] == [170.0]


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(replace(NO_ROOM, reason=Reason.GROUP_PLACING), id="being placed"),
        pytest.param(
            replace(NO_ROOM, members=(replace(members(1)[0], node="n1"), *members(4)[1:])),
            id="claimed",
        ),
        pytest.param(GroupStatus(KEY, {"x": "n1"}), id="nobody waits"),
    ],
)
def test_nothing_is_said_of_a_group_that_goes_on(reported, group):
    """Nor of one of which nobody waits."""
    reported.groups.waiting = [group]
    assert reported.until(1000.0) == []


def test_another_replicas_groups_are_not_reported(reported):
    """The holder of the Lease alone knows why they wait."""
    reported.groups.waiting, reported.groups.placing_from_s = [WAITS], 900.0
    assert [at_s for at_s, _ in reported.until(1000.0)] == [900.0]


def test_a_placed_group_is_reported_once_on_a_member(reported):
    """With its domain, its nodes and what it is worth."""
    reported.groups.outcomes = [PLACED]
    reported.reports.look()
    assert reported.notes == [
        Note(FIRST, EventReason.GROUP_PLACED, "leaf S12, 2 nodes, 382 GB/s all-reduce predicted")
    ]
    assert reported.outcomes == [(PLACED, 10.0)]
    reported.reports.look()
    assert len(reported.notes) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value": None}, "leaf S12, 2 nodes"),
        ({"value": replace(VALUE, gbytes_per_s=None)}, "leaf S12, 2 nodes"),
        ({"level": "any", "domain": "", "value": None}, "2 nodes"),
        (
            {"nodes": {"u0": "n1"}, "n_bound": 1, "level": "node", "domain": "n1"},
            "node n1, 1 node, 382 GB/s all-reduce predicted",
        ),
    ],
)
def test_what_is_unknown_is_left_out(reported, changes, message):
    """A group that is placed is worth an Event all the same."""
    reported.groups.outcomes = [replace(PLACED, **changes, complete_s=None)]
    reported.reports.look()
    assert [note.message for note in reported.notes] == [message]
    assert [seconds for _, seconds in reported.outcomes] == [None]


def test_a_partial_group_is_a_warning(reported):
    """Its members run without the others, which is not what was meant."""
    reported.groups.outcomes = [replace(PLACED, n_bound=1)]
    reported.reports.look()
    (note,) = reported.notes
    assert (note.about, note.reason) == (FIRST, EventReason.GROUP_PARTIAL)
    assert note.reason.is_warning
    assert note.message.startswith("1 of 2 members of ml/train are bound: Bindings of the others")
