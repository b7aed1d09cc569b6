"""Events and annotations: once each, bounded, and never in the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from extender.observe import Reporter, event_recorder
from extender.observe.event_recorder import MAX_QUEUED, PAUSE_S, REPEAT_AFTER_S
from extender.observe.events import EventReason, Note
from extender.state import Mismatch
from kube.errors import Conflict, NotFound
from kube.objects import ObjectKey
from tests.unit.extender.shells import BUSY, DOWN, FORBIDDEN, FakeTime, Log, backoff, run_until
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kube.client import ObjectEvent

POD, OTHER = ObjectKey("ns", "p", "u1"), ObjectKey("ns", "p", "u2")
NOTE = Note(POD, EventReason.INVALID_REQUEST, "why")
PLACED = replace(NOTE, reason=EventReason.PLACED)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MISMATCH = Mismatch("ns", "p", "u1", "n1", (), (), "what it has")


class Stage:
    """A reporter and the API server it writes to."""

    def __init__(
        self, level: Any = "warnings", *faults: Exception | None, at: datetime = NOON
    ) -> None:
        self.faults = list(faults)
        self.events: list[ObjectEvent] = []
        self.annotated: list[Any] = []
        self.time = FakeTime()
        self.log = Log()
        self.reporter = Reporter(
            self, "host", lambda: at, self.time, self.log, backoff, level, self.time.sleep
        )

    async def create_event(self, event: ObjectEvent) -> None:
        self._meet()
        self.events.append(event)

    async def annotate_pod(
        self, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        self._meet()
        self.annotated.append((namespace, name, uid, dict(annotations)))

    def _meet(self) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault


def run(stage: Stage, is_so: Any) -> None:
    """Write until something holds."""
    asyncio.run(run_until(stage.reporter.run(), is_so))


def test_an_event_says_who_what_and_when():
    """As `kubectl describe` shows it."""
    stage = Stage()
    stage.reporter.record(NOTE)
    run(stage, lambda: stage.reporter.n_written)
    (event,) = stage.events
    assert (event.about, event.is_warning, event.reason) == (POD, True, "InvalidGpuRequest")
    assert (event.message, event.at) == ("why", NOON)
    assert (event.component, event.instance) == ("coterie-extender", "host")


@pytest.mark.parametrize(
    ("level", "reasons"),
    [
        ("off", []),
        ("warnings", ["InvalidGpuRequest", "GroupPlaced"]),
        ("all", ["InvalidGpuRequest", "GpusPlaced", "GroupPlaced"]),
    ],
)
def test_the_setting_says_which_are_written(level, reasons):
    """Every Event is a write to etcd."""
    stage = Stage(level)
    stage.reporter.record(NOTE)
    stage.reporter.record(PLACED)
    stage.reporter.record(replace(PLACED, reason=EventReason.GROUP_PLACED))
    run(stage, lambda: stage.reporter.n_written == len(reasons))
    assert [event.reason for event in stage.events] == reasons


def test_the_same_is_told_once_until_its_event_has_gone():
    """A pending pod is filtered repeatedly."""
    stage = Stage()
    for _ in range(3):
        stage.reporter.record(NOTE)
    stage.reporter.record(replace(NOTE, message="why else"))
    stage.time.now_s += REPEAT_AFTER_S
    stage.reporter.record(NOTE)
    run(stage, lambda: stage.reporter.n_written == 3)
    assert [event.message for event in stage.events] == ["why", "why else", "why"]


def keys(*notes: Note, at: datetime = NOON) -> list[str]:
    """Keys of the Events that one replica writes."""
    stage = Stage("all", at=at)
    for note in notes:
        stage.reporter.record(note)
    run(stage, lambda: stage.reporter.n_written == len(notes))
    return [event.key for event in stage.events]


def test_replicas_that_report_the_same_write_one_event():
    """A standby sees what the leader sees; its Event has the name that is there already."""
    notes = (NOTE, replace(NOTE, message="else"), PLACED, replace(NOTE, about=OTHER))
    first = keys(*notes)
    assert len(set(first)) == len(notes)
    assert keys(*notes, at=NOON + timedelta(seconds=5)) == first
    assert not {*keys(*notes, at=NOON + timedelta(seconds=REPEAT_AFTER_S))} & {*first}
    stage = Stage("warnings", Conflict(409, "AlreadyExists", ""))
    stage.reporter.record(NOTE)
    run(stage, lambda: stage.time.slept)
    assert (stage.reporter.n_written, stage.reporter.n_failed, stage.log.lines) == (0, 0, [])


def test_events_are_written_at_a_bounded_rate():
    """Events must not overload the API server."""
    stage = Stage()
    for i in range(3):
        stage.reporter.record(replace(NOTE, message=str(i)))
    run(stage, lambda: stage.reporter.n_written == 3)
    assert stage.time.slept[:2] == [PAUSE_S, PAUSE_S]


def test_what_does_not_fit_is_counted():
    """And written later, if it is still true."""
    stage = Stage()
    for i in range(MAX_QUEUED + 2):
        stage.reporter.record(replace(NOTE, message=str(i)))
    assert stage.reporter.n_dropped == 2
    run(stage, lambda: stage.reporter.n_written == MAX_QUEUED)
    stage.reporter.record(replace(NOTE, message=str(MAX_QUEUED)))
    assert stage.reporter.n_dropped == 2


def test_what_is_remembered_is_bounded(monkeypatch):
    """The longest ago is forgotten first."""
    monkeypatch.setattr(event_recorder, "MAX_REMEMBERED", 3)
    stage = Stage("all")
    for message in ("0", "1", "2", "3", "3", "0"):
        stage.reporter.record(replace(NOTE, message=message))
    run(stage, lambda: stage.reporter.n_written == 5)
    assert [event.message for event in stage.events] == ["0", "1", "2", "3", "0"]


def test_an_event_that_fails_is_counted_and_may_be_told_again():
    """Each kind of refusal is logged once: a missing permission meets every Event."""
    stage = Stage("warnings", FORBIDDEN, FORBIDDEN, DOWN)
    for i in range(3):
        stage.reporter.record(replace(NOTE, message=str(i)))
    run(stage, lambda: stage.reporter.n_failed == 3)
    assert stage.log.lines == [
        {"event": "event_failed", "detail": str(FORBIDDEN)},
        {"event": "event_failed", "detail": str(DOWN)},
    ]
    stage.reporter.record(replace(NOTE, message="0"))
    run(stage, lambda: stage.reporter.n_written)


def test_what_was_allocated_is_written_on_the_pod():
    """Where it differs from the plan."""
    stage = Stage()
    stage.reporter.annotate(MISMATCH)
    run(stage, lambda: stage.annotated)
    assert stage.annotated == [("ns", "p", "u1", {names.ALLOCATED: "what it has"})]


def test_an_annotation_is_tried_until_it_is_there():
    """It is the record of what the pod has."""
    stage = Stage("warnings", DOWN, BUSY)
    stage.reporter.annotate(MISMATCH)
    run(stage, lambda: stage.annotated)
    assert stage.time.slept == [0.05, 1.0]
    assert stage.reporter.n_failed == 2


def test_a_pod_that_is_gone_needs_no_annotation():
    """No one can read it."""
    stage = Stage("warnings", NotFound(404, "NotFound", ""))
    stage.reporter.annotate(MISMATCH)
    stage.reporter.annotate(replace(MISMATCH, uid="u2"))
    run(stage, lambda: stage.annotated)
    assert [uid for _, _, uid, _ in stage.annotated] == ["u2"]


def test_the_latest_annotation_counts():
    """Also while an earlier one fails."""

    async def go() -> None:
        await run_until(stage.reporter.run(), lambda: stage.annotated)

    class Changing(Stage):
        def _meet(self) -> None:
            if not self.log.lines and self.faults:
                self.reporter.annotate(replace(MISMATCH, text="what it has now"))
            super()._meet()

    stage = Changing("warnings", DOWN)
    stage.reporter.annotate(MISMATCH)
    asyncio.run(go())
    assert stage.annotated == [("ns", "p", "u1", {names.ALLOCATED: "what it has now"})]
