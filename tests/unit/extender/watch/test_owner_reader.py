"""Owners of groups: each read once, after a fault that may pass again, and never in a burst."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from extender.engine.events import OwnerRead
from extender.protocol import GroupOwner
from extender.watch import OwnerReader, WatchLog
from extender.watch.owner_reader import (
    FORBIDDEN_S,
    MAX_ABSENT,
    MAX_BROKEN,
    MAX_FAULTS,
    N_READERS,
    PACE_S,
)
from kube.errors import KubeError, Malformed
from kube.objects import Gang
from tests.unit.extender.pods import GPU
from tests.unit.extender.shells import BUSY, DOWN, FORBIDDEN, FakeTime, Log, backoff, run_until

if TYPE_CHECKING:
    from collections.abc import Collection

    from extender.engine.events import StateEvent

JOB = GroupOwner("indexed-job", "ns", "train", "u1")
JOB_SET = GroupOwner("jobset", "ns", "train", "u1")
POD_GROUP = GroupOwner("coscheduling", "ns", "train")
BROKEN = KubeError(500, "InternalError", "conversion webhook")


class Stage:
    """A reader, what it reads from, and what receives its events."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.wanted: list[GroupOwner] = []
        self.received: list[Any] = []
        self.alone: list[str] = []
        self.n_changes = 0
        self.log = Log()
        self.time = FakeTime()
        self.reader = OwnerReader(
            take_wanted=self._take,
            handle=self._handle,
            api=self,
            resources=(GPU,),
            changed=self._change,
            on_alone=self._place_alone,
            clock=self.time,
            log=WatchLog(self.log),
            backoff=backoff,
            sleep=self.time.sleep,
        )

    async def get_job_gang(self, namespace: str, name: str) -> Gang | None:
        return self._answer("job", namespace, name)

    async def get_job_set_gang(
        self, namespace: str, name: str, resources: Collection[str]
    ) -> Gang | None:
        assert resources == (GPU,)
        return self._answer("jobset", namespace, name)

    async def get_pod_group_gang(self, namespace: str, name: str) -> Gang | None:
        return self._answer("podgroup", namespace, name)

    @property
    def sizes(self) -> list[int | None]:
        """What the gateway got."""
        return [event.size for event in self.received]

    def _answer(self, *asked: str) -> Gang | None:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: Gang | None = answer
        return found

    def _take(self, now_s: float) -> list[GroupOwner]:
        assert now_s == self.time.now_s
        taken, self.wanted = self.wanted, []
        return taken

    def _place_alone(self, _owner: GroupOwner, why: str) -> None:
        self.alone.append(why)

    def _handle(self, event: StateEvent) -> None:
        self.received.append(event)

    def _change(self) -> None:
        self.n_changes += 1


def run(stage: Stage, *owners: GroupOwner) -> None:
    """Want these, and run until all were handled."""

    async def go() -> None:
        n_before = len(stage.received)
        stage.wanted = list(owners)
        stage.reader.look()
        is_done = lambda: len(stage.received) == n_before + len(owners)  # noqa: E731 - a condition
        await run_until(stage.reader.run(), is_done)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("owner", "asked"),
    [
        pytest.param(JOB, "job", id="a Job"),
        pytest.param(JOB_SET, "jobset", id="a JobSet"),
        pytest.param(POD_GROUP, "podgroup", id="a PodGroup, whose uid is not known"),
    ],
)
def test_what_is_found_is_handed_on(owner, asked):
    """One request for an owner, and one event."""
    stage = Stage(Gang("u1", 8))
    run(stage, owner)
    assert stage.asked == [(asked, "ns", "train")]
    assert stage.received == [OwnerRead(owner, 8, 100.0)]
    assert (stage.n_changes, stage.alone, stage.reader.results["sized"]) == (1, [], 1)


@pytest.mark.parametrize(
    ("gang", "result", "said"),
    [
        pytest.param(Gang("u1", None), "no_gang", "", id="its pods need not run together"),
        pytest.param(
            Gang("u1", None, "spec.replicatedJobs[1] has dependsOn"),
            "one_by_one",
            "the pods of JobSet ns/train are placed without a group: it creates its pods one after "
            "the other, so that none may wait: spec.replicatedJobs[1] has dependsOn",
            id="one after the other",
        ),
        pytest.param(Gang("u2", 8), "absent", "another has its name", id="created again"),
    ],
)
def test_what_is_no_group_is_placed_alone(gang, result, said):
    """It is said where a user may have expected one."""
    stage = Stage(gang)
    run(stage, JOB_SET)
    assert (stage.sizes, stage.reader.results[result]) == ([None], 1)
    assert [said in one for one in stage.alone] == [True] * bool(said)
    assert stage.log.events == []


@pytest.mark.parametrize(("error", "delay_s"), [(DOWN, 0.05), (BUSY, 1.0)], ids=["down", "busy"])
def test_a_fault_that_may_pass_is_waited_out(error, delay_s):
    """Its pods wait meanwhile: nothing could be bound anyway."""
    stage = Stage(error, Gang("u1", 8))
    run(stage, JOB)
    assert stage.sizes == [8]
    assert stage.time.slept[0] == delay_s
    assert stage.alone == []


@pytest.mark.parametrize(
    ("answers", "result", "said"),
    [
        pytest.param([DOWN] * MAX_FAULTS, "failed", "it cannot be read (Unreach", id="down"),
        pytest.param([BROKEN] * MAX_BROKEN, "failed", "conversion webhook", id="broken"),
        pytest.param([Malformed(0, "Malformed", "x")], "failed", "Malformed: x", id="malformed"),
        pytest.param([None] * MAX_ABSENT, "absent", "it does not exist", id="absent"),
    ],
)
def test_what_cannot_be_read_is_placed_alone_after_a_bound(answers, result, said):
    """Pods must not wait for ever for what is not to be known."""
    stage = Stage(*answers)
    run(stage, JOB)
    assert (stage.sizes, stage.answers, stage.reader.results[result]) == ([None], [], 1)
    assert said in stage.alone[0]
    assert stage.log.events == ["object_unreadable"] * (result == "failed")


def test_a_pod_may_come_before_the_object_that_it_names():
    """A PodGroup later in the same manifest."""
    stage = Stage(None, None, Gang("u1", 3))
    run(stage, POD_GROUP)
    assert stage.sizes == [3]


def test_a_missing_right_is_named_and_not_tried_for_each_object():
    """A thousand Jobs would be as many refusals; another kind or namespace may be allowed."""
    elsewhere = GroupOwner("indexed-job", "other", "train", "u1")
    stage = Stage(FORBIDDEN, Gang("u1", 2), Gang("u1", 2), Gang("u9", 4))
    run(stage, JOB)
    others = [GroupOwner("indexed-job", "ns", f"j{i}", f"u{i}") for i in range(3)]
    run(stage, *others, elsewhere, JOB_SET)
    assert len(stage.asked) == 3
    assert sorted(stage.sizes, key=str) == [2, 2, None, None, None, None]
    assert stage.reader.results["forbidden"] == 4
    assert stage.alone[0] == (
        "the pods of Job ns/train are placed without a group: the extender may not get jobs.batch "
        "in namespace ns: apply deploy/group-kinds/indexed-job.yaml, or with the chart set "
        "extender.settings.group_kinds"
    )
    assert stage.log.events == ["object_unreadable"]
    stage.time.now_s += FORBIDDEN_S
    run(stage, GroupOwner("indexed-job", "ns", "j9", "u9"))
    assert stage.sizes[-1] == 4


def test_a_thousand_jobs_are_read_a_few_at_a_time():
    """80 a second, however many come at once."""
    stage = Stage(*[Gang("", 2)] * 1000)
    run(stage, *(GroupOwner("indexed-job", "ns", f"j{i}") for i in range(1000)))
    assert set(stage.time.slept) == {PACE_S}
    assert len(stage.time.slept) >= 1000 - N_READERS


def test_what_is_not_there_holds_up_no_other():
    """Anybody may name objects that do not exist; a Job that comes after them is read at once."""
    absent = [GroupOwner("coscheduling", "ns", f"g{i}") for i in range(100)]
    stage = Stage(*[None] * 100, Gang("u1", 8), *[None] * (100 * (MAX_ABSENT - 1)))
    run(stage, *absent, JOB)
    assert stage.received[0] == OwnerRead(JOB, 8, stage.received[0].at_s)
    assert stage.reader.results["absent"] == 100


def test_an_owner_is_read_once_for_each_time_it_is_wanted():
    """A look is as frequent as the changes of a cluster, and mostly finds nothing new."""
    stage = Stage(Gang("u1", 8), Gang("u1", 6))
    run(stage, JOB)
    run(stage)
    stage.reader.look()
    run(stage, JOB)
    assert stage.sizes == [8, 6]
