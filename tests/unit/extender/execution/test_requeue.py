"""Waking: only pods that still wait are touched, each time with a new value."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from extender.engine.events import RequeueDropped, RequeueDue
from extender.execution import Requeuer
from extender.pending import Requeue
from kube.errors import NotFound
from tests.unit.extender.shells import DOWN, FORBIDDEN, FakeTime, Log, pod_object, run_until
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kube.objects import PodObject

REQUEUE = Requeue("ns", "p", "u1")


class Stage:
    """A requeuer, its gateway and its API server. `pod` and `fault` are the API server's."""

    def __init__(
        self, pod: Any, fault: Exception | None = None, requeue: Requeue = REQUEUE
    ) -> None:
        self.pod = pod
        self.fault = fault
        self.requeue = requeue
        self.due = [requeue]
        self.looked_at: list[float] = []
        self.dropped: list[str] = []
        self.written: list[Any] = []
        self.log = Log()
        values = count(1)
        gateway: Any = self
        self.requeuer = Requeuer(gateway, self, FakeTime(5.0), lambda: f"v{next(values)}", self.log)

    @property
    def n_done(self) -> int:
        return self.requeuer.n_requeued + self.requeuer.n_skipped + self.requeuer.n_failed

    def handle(self, event: RequeueDue | RequeueDropped) -> list[Requeue]:
        """The gateway's."""
        if isinstance(event, RequeueDropped):
            self.dropped.append(event.uid)
            return []
        self.looked_at.append(event.at_s)
        due, self.due = self.due, []
        return due

    async def get_pod(self, namespace: str, name: str) -> PodObject | None:
        assert (namespace, name) == ("ns", "p")
        if isinstance(self.pod, Exception):
            raise self.pod
        found: PodObject | None = self.pod
        return found

    async def annotate_pod(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        self.written.append((namespace, name, uid, dict(annotations)))
        if self.fault is not None:
            raise self.fault


def run(stage: Stage, *, n_looks: int = 1) -> None:
    """Look so often, and act on it."""

    async def look(n_done: int) -> None:
        stage.due = stage.due or [stage.requeue]
        stage.requeuer.look()
        await run_until(stage.requeuer.run(), lambda: stage.n_done == n_done)

    async def go() -> None:
        for n in range(n_looks):
            await look(n + 1)

    asyncio.run(go())


def test_a_pod_that_waits_is_touched():
    """With a value that no earlier wake wrote: the same again would be no change."""
    stage = Stage(pod_object("u1"))
    run(stage, n_looks=2)
    assert stage.looked_at == [5.0, 5.0]
    assert stage.written == [
        ("ns", "p", "u1", {names.RETRY: "v1"}),
        ("ns", "p", "u1", {names.RETRY: "v2"}),
    ]
    assert (stage.requeuer.n_requeued, stage.dropped) == (2, [])
    assert stage.log.lines[0] == {"event": "requeued", "pod": "ns/p", "pod_uid": "u1"}


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(None, id="gone"),
        pytest.param(pod_object("u2"), id="another has its name"),
        pytest.param(pod_object("u1", "n1"), id="bound"),
        pytest.param(pod_object("u1", is_deleting=True), id="being deleted"),
    ],
)
def test_a_pod_that_waits_no_more_is_left_alone(found):
    """And the engine forgets it."""
    stage = Stage(found)
    run(stage)
    assert (stage.written, stage.dropped, stage.requeuer.n_skipped) == ([], ["u1"], 1)


@pytest.mark.parametrize(
    ("before", "now", "n_written"),
    [
        pytest.param("", {"retry": "theirs"}, 0, id="woken by another replica"),
        pytest.param("old", {"retry": "theirs"}, 0, id="and not for the first time"),
        pytest.param("old", {"retry": "old"}, 1, id="as it was rejected"),
        pytest.param("", {}, 1, id="never woken"),
        pytest.param(None, {"retry": "ours"}, 1, id="requeued by the extender, still refused"),
    ],
)
def test_a_pod_that_another_replica_woke_is_left_to_it(before, now, n_written):
    """The scheduler tried it since; a replica has it as unschedulable if it was refused."""
    stage = Stage(pod_object("u1", **now), requeue=Requeue("ns", "p", "u1", before))
    run(stage)
    assert len(stage.written) == n_written
    assert stage.dropped == ([] if n_written else ["u1"])


def test_a_pod_that_goes_before_it_is_touched_is_forgotten_too():
    """Between the look and the touch."""
    stage = Stage(pod_object("u1"), NotFound(404, "NotFound", ""))
    run(stage)
    assert (stage.dropped, stage.requeuer.n_skipped, stage.requeuer.n_requeued) == (["u1"], 1, 0)


@pytest.mark.parametrize(("pod", "fault"), [(DOWN, None), (pod_object("u1"), FORBIDDEN)])
def test_a_failed_requeue_is_reported_and_the_next_goes_on(pod, fault):
    """The engine names the pod again."""
    stage = Stage(pod, fault)
    run(stage, n_looks=2)
    assert (stage.requeuer.n_failed, stage.dropped) == (2, [])
    assert stage.log.lines[0]["detail"] == str(fault or pod)
