"""What Coterie's Events say of groups is hashed, in the very words of the extender."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NoReturn

import pytest

from extender.groups import GroupOutcome, GroupStatus, Reservation
from extender.groups.readings import MemberStatus
from extender.observe import GroupReports, Note
from extender.protocol import GroupOwner, Reason
from extender.watch import OwnerReader, WatchLog
from kubectl_coterie.bundle import Contents, NameHashes
from tests.unit.extender.shells import FORBIDDEN, FakeTime, Log, backoff, run_until
from topology.groups import NoRoom, NoRoomReason

MARK = "zqx"
"""In every string that a user chose; a hash has no such letters."""
GROUPS = ("zqxjob", "indexed-job/zqxjob/0f0e4f3b", "yunikorn/zqxapp/zqxworkers")
MEMBERS = tuple(MemberStatus(f"u{i}", f"zqxpod-{i}", 0.0, 8, None) for i in range(2))


class Groups:
    """One group, and what became of it."""

    def __init__(self, status=None, outcome=None):
        self.status, self.outcome = status, outcome

    def is_placing(self, now_s):
        return now_s > 0

    def take_outcomes(self):
        return [] if self.outcome is None else [self.outcome]

    def statuses(self):
        return iter([] if self.status is None else [self.status])


class Forbidding:
    """An API server that lets no owner be read."""

    def __init__(self):
        self.asked = []

    async def get_job_gang(self, namespace, name):
        return self._refuse(namespace, name)

    async def get_job_set_gang(self, namespace, name, resources):
        return self._refuse(namespace, name, resources)

    async def get_pod_group_gang(self, namespace, name):
        return self._refuse(namespace, name)

    def _refuse(self, *asked) -> NoReturn:
        self.asked.append(asked)
        raise FORBIDDEN


def statuses(key):
    """A group that waits, in each way that is reported."""
    waits = GroupStatus(key, {}, 4, MEMBERS, Reason.GROUP_WAITING)
    no_room = NoRoom(NoRoomReason.NOT_NOW, "leaf", "zqxP1/zqxS12", 3, 4)
    never = NoRoom(NoRoomReason.NEVER, "rack", "zqxR4", 3, 4)
    differs = "zqxgone-0 states size 2 and domain leaf, zqxgone-1 size 3 and domain any"
    reserved = Reservation(key, frozenset({"n1", "n2"}), "leaf", "zqxP1/zqxS13", 0.0, 0)
    yield waits
    yield replace(waits, size=2, reason=Reason.GROUP_NO_ROOM, detail=no_room.detail)
    yield replace(waits, size=2, reason=Reason.GROUP_NEVER, detail=never.detail)
    yield replace(waits, reason=Reason.GROUP_DIFFERS, detail=differs)
    yield replace(waits, reservation=reserved)


def reported(groups):
    """What is said of it in the end."""
    notes: list[Note] = []
    GroupReports(groups, notes.append, lambda: 1000.0, lambda *_: None).look()
    assert notes
    return [note.message for note in notes]


def hashed(messages):
    """The messages in a bundle where nothing else names what they name."""
    contents = Contents()
    contents.add("events.json", [{"message": one} for one in messages], kind="event")
    return contents.members({}, NameHashes(b"key"))["events.json"].decode()


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_that_waited_leaves_no_name(name):
    """It may be gone, and its pods with it."""
    for status in statuses(("zqxteam", name)):
        text = hashed(reported(Groups(status)))
        assert MARK not in text
        assert "0f0e4f3b" not in text


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("n_bound", [1, 2])
def test_a_group_that_was_placed_leaves_no_name(name, n_bound):
    """Neither its own nor that of the switch that it is under."""
    nodes = {"u0": "n1", "u1": "n2"}
    key = "zqxteam", name
    outcome = GroupOutcome(key, "u0", "p", nodes, "leaf", "zqxP1/zqxS1", None, 0.0, n_bound=n_bound)
    text = hashed(reported(Groups(outcome=outcome)))
    assert MARK not in text
    assert ("domain-" in text) is (n_bound == len(nodes))


@pytest.mark.parametrize("kind", ["indexed-job", "jobset", "coscheduling"])
def test_an_owner_that_cannot_be_read_leaves_no_name(kind):
    """Jobs and PodGroups are in no other file of a bundle; what to apply is still said."""
    said: list[str] = []
    done: list[object] = []
    time = FakeTime()
    wanted = [GroupOwner(kind, "zqxteam", "zqxjob.v1", "u1")]

    reader = OwnerReader(
        take_wanted=lambda _now_s: wanted,
        handle=done.append,
        api=Forbidding(),
        resources=("nvidia.com/gpu",),
        changed=lambda: None,
        on_alone=lambda _owner, why: said.append(why),
        clock=time,
        log=WatchLog(Log()),
        backoff=backoff,
        sleep=time.sleep,
    )
    reader.look()
    asyncio.run(run_until(reader.run(), lambda: bool(done)))
    text = hashed(said)
    assert MARK not in text
    assert f"deploy/group-kinds/{kind}.yaml" in text
