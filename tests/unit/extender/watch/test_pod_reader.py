"""Pods read in full: each wish once, again after a fault that may pass, and never in the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from extender.engine.events import PodDeleted, PodFetched
from extender.state import Probe
from extender.watch import Prober, WatchLog
from extender.watch.pod_reader import FAULTS_OF_POD, N_READERS, REFUSED_AGAIN_S
from kube.errors import KubeError, Malformed
from tests.unit.extender.shells import (
    BUSY,
    DOWN,
    FORBIDDEN,
    FakeTime,
    Log,
    backoff,
    pod_object,
    run_until,
    until,
)

if TYPE_CHECKING:
    from extender.engine.events import StateEvent
    from kube.objects import PodObject

PROBE = Probe("ns", "p", "u1")


class Stage:
    """A prober, what it reads from, and what receives its events."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.received: list[Any] = []
        self.n_changes = 0
        self.n_requests = 0
        self.log = Log()
        self.time = FakeTime()
        self.prober = Prober(
            self._handle, self, self._change, WatchLog(self.log), backoff, self.time.sleep
        )

    async def get_pod(self, namespace: str, name: str) -> PodObject | None:
        assert (namespace, name) == ("ns", "p")
        self.n_requests += 1
        answer = self.answers.pop(0)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return None
        if isinstance(answer, Exception):
            raise answer
        found: PodObject | None = answer
        return found

    def _handle(self, event: StateEvent) -> None:
        """The gateway's."""
        self.received.append(event)

    def _change(self) -> None:
        self.n_changes += 1


def run(stage: Stage, *probes: Probe) -> None:
    """Ask for these and run until all are read."""

    async def go() -> None:
        for probe in probes:
            stage.prober.request(probe)
        await run_until(stage.prober.run(), lambda: not stage.prober.n_open)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("found", "received"),
    [
        pytest.param(pod_object("u1"), PodFetched(pod_object("u1")), id="it is there"),
        pytest.param(None, PodDeleted("u1"), id="it is gone"),
        pytest.param(pod_object("u2"), PodDeleted("u1"), id="another has its name"),
    ],
)
def test_what_is_found_is_reported(found, received):
    """The state gets the pod that it requested, and no other."""
    stage = Stage(found)
    run(stage, PROBE)
    assert (stage.received, stage.n_changes, stage.prober.n_read) == ([received], 1, 1)


@pytest.mark.parametrize(("error", "delay_s"), [(DOWN, 0.05), (BUSY, 1.0)], ids=["down", "busy"])
def test_a_fault_that_may_pass_is_waited_out(error, delay_s):
    """Until then the node can only be counted on."""
    stage = Stage(error, None)
    run(stage, PROBE)
    assert (stage.received, stage.time.slept) == ([PodDeleted("u1")], [delay_s])
    assert (stage.prober.n_read, stage.prober.n_failed) == (1, 1)


@pytest.mark.parametrize("error", [FORBIDDEN, Malformed(0, "Malformed", "")], ids=["403", "odd"])
def test_a_permanent_fault_is_logged(error):
    """And holds up no other pod."""
    stage = Stage(*[error] * N_READERS * 2, None)
    run(stage, *(Probe("ns", "p", f"x{i}") for i in range(N_READERS * 2)), PROBE)
    assert stage.received == [PodDeleted("u1")]
    assert stage.log.events == ["object_unreadable"] * N_READERS * 2
    assert (stage.prober.n_refused, stage.prober.open) == (N_READERS * 2, frozenset())


def test_a_pod_that_the_server_cannot_decode_is_refused_after_some_tries():
    """It answers 500 for it for ever, which must not hold up the start."""
    stage = Stage(*[KubeError(500, "InternalError", "decoding")] * FAULTS_OF_POD)
    run(stage, PROBE)
    assert (stage.prober.n_refused, stage.prober.n_open) == (1, 0)


def test_a_refused_pod_is_tried_again_each_minute():
    """Until then its devices are unknown; a missing permission may be granted."""

    async def go() -> None:
        stage.prober.request(PROBE)
        await run_until(stage.prober.run(), lambda: stage.prober.n_read)

    stage = Stage(FORBIDDEN, FORBIDDEN, pod_object())
    asyncio.run(go())
    assert stage.received == [PodFetched(pod_object())]
    assert set(stage.time.slept) == {REFUSED_AGAIN_S}
    assert stage.prober.n_refused == 0


def test_a_wish_is_read_once_while_it_waits():
    """A pod that changes ten times before its turn is read as it is then."""
    stage = Stage(None)
    run(stage, PROBE, PROBE, PROBE)
    assert (stage.n_requests, stage.prober.n_open) == (1, 0)


def test_a_wish_during_the_reading_is_read_after_it():
    """What is being read may be older than the request for it."""

    async def go() -> None:
        running = asyncio.ensure_future(stage.prober.run())
        stage.prober.request(PROBE)
        await until(lambda: stage.n_requests == 1)
        stage.prober.request(PROBE)
        stage.prober.request(PROBE)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (stage.n_requests, stage.prober.n_open) == (1, 1)
        may_answer.set()
        await until(lambda: stage.prober.n_read == 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    may_answer = asyncio.Event()
    stage = Stage(may_answer, pod_object())
    asyncio.run(go())
    assert stage.received == [PodDeleted("u1"), PodFetched(pod_object())]
