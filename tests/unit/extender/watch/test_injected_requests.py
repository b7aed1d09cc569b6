"""Pods whose request was added at admission: read once each, and counted from then on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from extender.engine.events import PodDeleted, PodsListed, PodUpdated
from extender.state import Probe
from extender.watch import InjectedRequests, WatchLog
from kube.objects import PodFacts
from tests.unit.extender.feeds import free, live, node, whole
from tests.unit.extender.pods import GPU
from tests.unit.extender.shells import DOWN, FakeTime, Log, backoff, run_until, until

if TYPE_CHECKING:
    from extender.engine.events import StateEvent
    from kube.objects import PodObject

RESOURCES = ("nvidia.com/mig-1g.10gb", GPU)
SILENT = PodFacts("u1", "default", "pod-u1", "7", None, None, may_request=False)
FOUND = replace(SILENT, resource_version="1", may_request=True)


class Stage:
    """The reader of such pods, between a sink and a gateway."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.events: list[StateEvent] = []
        self.n_changes = 0
        self.n_reads = 0
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.time = FakeTime()
        self.injected = InjectedRequests(
            self.events.append,
            RESOURCES,
            self,
            self._change,
            WatchLog(Log()),
            backoff,
            self.time.sleep,
        )

    async def get_pod(self, namespace: str, name: str) -> PodObject | None:
        assert (namespace, name) == ("default", "pod-u1")
        await self.may_read.wait()
        self.n_reads += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        found: PodObject | None = answer
        return found

    def _change(self) -> None:
        self.n_changes += 1

    def run(self, *events: StateEvent) -> None:
        """Take these and read what has to be read."""

        async def go() -> None:
            for event in events:
                self.injected.take(event)
            await run_until(self.injected.run(), lambda: not self.injected.n_open)

        asyncio.run(go())


def test_a_pod_whose_request_was_injected_is_found():
    """By one read; from then on each event of it says that it may request."""
    stage = Stage(whole("u1", "n1", 2))
    stage.run(PodUpdated(SILENT), PodUpdated(SILENT))
    assert stage.events == [PodUpdated(SILENT), PodUpdated(SILENT), PodUpdated(FOUND)]
    assert (stage.n_reads, stage.n_changes) == (1, 1)
    stage.run(PodUpdated(replace(SILENT, resource_version="9")), PodsListed((SILENT,)))
    assert stage.events[3:] == [
        PodUpdated(replace(SILENT, resource_version="9", may_request=True)),
        PodsListed((replace(SILENT, may_request=True),)),
    ]
    assert stage.n_reads == 1


def test_a_pod_without_any_request_is_read_once():
    """Most pods of a cluster are such: no event of theirs may cost a read."""
    mentioned = json.loads(whole("u1", "n1", 0).body)
    mentioned["metadata"]["annotations"] = {"note": f'{{"{GPU}":"4"}}'}
    stage = Stage(whole("u1", "n1", body=mentioned))
    stage.run(PodsListed((SILENT,)), PodUpdated(SILENT))
    stage.run(PodUpdated(SILENT))
    assert stage.events == [PodsListed((SILENT,)), PodUpdated(SILENT), PodUpdated(SILENT)]
    assert (stage.n_reads, stage.n_changes) == (1, 0)


@pytest.mark.parametrize(
    "change", [{"plan": "{}"}, {"may_request": True}], ids=["it has a plan", "it may request"]
)
def test_other_pods_are_not_read(change):
    """Their plan is known, or the state has them read itself."""
    stage = Stage()
    pod = replace(SILENT, **change)
    stage.run(PodUpdated(pod), PodsListed((pod,)), PodDeleted("u1"))
    assert stage.events == [PodUpdated(pod), PodsListed((pod,)), PodDeleted("u1")]
    assert stage.n_reads == 0


def test_a_fault_of_the_server_is_waited_out():
    """The pod is read when the server answers again."""
    stage = Stage(DOWN, whole("u1", "n1", 1))
    stage.run(PodUpdated(SILENT))
    assert stage.events[-1] == PodUpdated(FOUND)


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        pytest.param(PodDeleted("u1"), whole("u1", "n1", 1), id="it left meanwhile"),
        pytest.param(PodsListed(()), whole("u1", "n1", 1), id="a list lacks it"),
        pytest.param(None, None, id="it is not there any more"),
        pytest.param(None, whole("u2", "n1", 1), id="another has its name"),
    ],
)
def test_a_pod_that_left_is_not_passed_on(end, answer):
    """Nothing would ever end it."""
    stage = Stage(answer)

    async def go() -> None:
        stage.may_read.clear()
        stage.injected.take(PodUpdated(SILENT))
        running = asyncio.ensure_future(stage.injected.run())
        await asyncio.sleep(0)
        if end is not None:
            stage.injected.take(end)
        stage.may_read.set()
        await until(lambda: stage.n_reads == 1 and not stage.injected.n_open)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(go())
    assert stage.events == [PodUpdated(SILENT), *([] if end is None else [end])]
    assert stage.n_changes == 0


def test_its_devices_are_counted():
    """They were free for others, and the node could be planned on."""
    cluster = live(node("n1"))
    for event in (PodUpdated(SILENT), PodUpdated(FOUND)):
        cluster.pods.update(event.pod)
    assert cluster.take_effects() == (Probe("default", "pod-u1", "u1"),)
    cluster.pods.read(whole("u1", "n1", 3))
    assert free(cluster, "n1") == "0001"
