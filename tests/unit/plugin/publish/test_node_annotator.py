"""The publisher before a Node in memory, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from dataclasses import replace

import pytest

from kube.errors import Unanswered, refusal
from plugin.publish import NodeWritten, Publisher
from plugin.publish.node_annotator import WriteFailureReason, WriteTiming
from topology.annotations import (
    DeviceHold,
    DevicesReport,
    MissingDevices,
    TopologyManagerPolicy,
    UnhealthyDevice,
    decode_devices,
    encode_devices,
)
from topology.errors import CodecError
from topology.model import names

PACE = WriteTiming()
REPORT = DevicesReport(policy=TopologyManagerPolicy.NONE)
SICK = DevicesReport(unhealthy=(UnhealthyDevice("GPU-1", "XID 79"),))
HELD = DevicesReport(holds=(DeviceHold("u", "ns", "p", "main", "nvidia.com/gpu", ("GPU-0",)),))
FORBIDDEN = refusal(403, "Forbidden", b"")
UNANSWERED = Unanswered(0, "Timeout", "")
BUSY = refusal(503, "Busy", b"", retry_after_s=7.0)


class Clock:
    """Time that stands still until the test moves it."""

    def __init__(self):
        self.now_s = 0.0
        self._sleepers = []
        self._serial = itertools.count()

    async def sleep(self, delay_s):
        """Sleep until the time has come."""
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + delay_s, next(self._serial), woken))
        await woken

    async def move(self, by_s):
        """Let time pass, and run all tasks that are due."""
        until_s = self.now_s + by_s
        await settled()
        while self._sleepers and self._sleepers[0][0] <= until_s + 1e-9:
            self.now_s, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await settled()
        self.now_s = until_s

    @property
    def has_sleepers(self):
        """Whether anything is to happen by itself."""
        return any(not woken.done() for _, _, woken in self._sleepers)


async def settled():
    """Until no task can go on without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


class Node:
    """A Node of the API server: a write of what is there already changes nothing."""

    def __init__(self, annotations=None, *errors):
        self.annotations = {"other": "kept", **(annotations or {})}
        self.errors = list(errors)
        self.patches = []
        self.n_versions = 0
        self.during = lambda: None

    async def annotate_node(self, name, annotations):
        """Do what the API server does with a merge patch, or fail as the test says."""
        assert name == "node-0"
        self.patches.append(dict(annotations))
        self.during()
        error = self.errors.pop(0) if self.errors else None
        if error is not None and not isinstance(error, Unanswered):
            raise error
        after = {**self.annotations, **annotations}
        after = {key: value for key, value in after.items() if value is not None}
        self.n_versions += after != self.annotations
        self.annotations = after
        if error is not None:
            raise error
        return dict(after)

    @property
    def report(self):
        """The report that is there."""
        return decode_devices(self.annotations[names.DEVICES])

    @property
    def wrote(self):
        """The keys of each write."""
        return [tuple(one) for one in self.patches if one]


class Events:
    """The events of a publisher, by kind."""

    def __init__(self):
        self.writes = []
        self.faults = []

    def emit(self, event):
        """Keep it."""
        if isinstance(event, NodeWritten):
            self.writes.append((event.keys, event.generation))
        else:
            self.faults.append(event)


class Scene:
    """A publisher that runs, its Node, its clock and its events."""

    def __init__(self, node):
        self.node = node
        self.clock = Clock()
        self.events = Events()
        self.publisher = Publisher(
            node,
            "node-0",
            emit=self.events.emit,
            pace=PACE,
            sleep=self.clock.sleep,
            jitter=lambda: 0.0,
        )

    async def written(self, topology, devices):
        """Publish, and let it be written."""
        self.publisher.publish(topology, devices)
        await self.clock.move(PACE.coalesce_s)


def play(act, *errors, **annotations):
    """Run a scene and return it; the annotations are what the Node has at first."""
    keys = {names.PREFIX + key: value for key, value in annotations.items()}

    async def run():
        scene = Scene(Node(keys, *errors))
        running = asyncio.ensure_future(scene.publisher.run())
        try:
            await act(scene)
            await settled()
            if running.done():
                running.result()
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        return scene

    return asyncio.run(run())


def test_what_is_wanted_is_written_at_once():
    """One look at what is there, one write of both, and others' annotations stay."""

    async def act(scene):
        assert not scene.publisher.is_published
        scene.publisher.publish("topology", REPORT)
        await scene.clock.move(PACE.urgent_s)
        assert scene.publisher.is_published

    scene = play(act)
    assert scene.node.patches[0] == {}
    assert scene.node.wrote == [(names.TOPOLOGY, names.DEVICES)]
    assert scene.node.annotations["other"] == "kept"
    assert scene.node.annotations[names.TOPOLOGY] == "topology"
    assert scene.node.report == replace(REPORT, generation=1)
    assert len(scene.events.writes) == scene.node.n_versions == 1
    assert scene.events.writes == [((names.TOPOLOGY, names.DEVICES), 1)]


def test_what_is_there_already_is_not_written():
    """A restarted plugin finds its own annotations, and writes nothing."""
    text = encode_devices(replace(REPORT, generation=7))

    async def act(scene):
        await scene.written("topology", replace(REPORT, generation=99))
        assert scene.publisher.is_published

    scene = play(act, topology="topology", devices=text)
    assert scene.node.patches == [{}]
    assert (scene.node.n_versions, len(scene.events.writes)) == (0, 0)
    assert scene.node.annotations[names.DEVICES] == text


@pytest.mark.parametrize(
    ("topology", "report", "keys", "generation"),
    [
        pytest.param("new", REPORT, (names.TOPOLOGY,), 7, id="topology alone moves no generation"),
        pytest.param("old", SICK, (names.DEVICES,), 8, id="the report alone"),
        pytest.param("new", SICK, (names.TOPOLOGY, names.DEVICES), 8, id="both in one"),
        pytest.param(None, REPORT, (names.TOPOLOGY,), 7, id="a topology that is none any more"),
    ],
)
def test_only_what_differs_is_written(topology, report, keys, generation):
    """The generation goes on from what the Node shows."""

    async def act(scene):
        await scene.written(topology, report)

    old = encode_devices(replace(REPORT, generation=7))
    scene = play(act, topology="old", devices=old)
    assert scene.node.wrote == [keys]
    assert scene.node.report == replace(report, generation=generation)
    assert scene.node.annotations.get(names.TOPOLOGY) == topology
    assert scene.events.writes == [(keys, generation)]


def test_reports_that_are_none_are_removed_or_replaced():
    """Nothing to say is no annotation; what cannot be decoded is written again."""

    async def remove(scene):
        await scene.written(None, None)

    async def replace_it(scene):
        await scene.written(None, REPORT)

    scene = play(remove, topology="old", devices="{}")
    assert scene.node.annotations == {"other": "kept"}
    assert play(remove).node.patches == [{}]
    scene = play(replace_it, devices="no report")
    assert scene.node.report.generation == 1


def test_generations_grow_and_count_changes_only():
    """A reader may go by them: greater is newer, equal is the same."""

    async def act(scene):
        for report in (REPORT, SICK, SICK, REPORT):
            await scene.written("topology", replace(report, generation=99))

    scene = play(act)
    assert [generation for _, generation in scene.events.writes] == [1, 2, 3]
    assert scene.node.report.generation == 3


def test_the_greatest_generation_is_not_passed():
    """A forged one must not make a report that no reader takes."""

    async def act(scene):
        await scene.written(None, SICK)

    scene = play(act, devices=encode_devices(DevicesReport(2**63 - 1)))
    assert scene.node.report == replace(SICK, generation=2**63 - 1)


def test_changes_that_come_together_are_one_write():
    """Each write wakes every parked pod of the cluster."""

    async def act(scene):
        await scene.written("topology", REPORT)
        for i in range(5):
            scene.publisher.publish(f"topology {i}", REPORT)
            await scene.clock.move(0.1)
        assert len(scene.events.writes) == 1
        await scene.clock.move(PACE.coalesce_s)

    scene = play(act)
    assert scene.node.wrote[1:] == [(names.TOPOLOGY,)]
    assert scene.node.annotations[names.TOPOLOGY] == "topology 4"


def test_what_is_taken_back_in_time_is_not_written():
    """A hold that began and ended within a moment is not published."""

    async def act(scene):
        await scene.written("topology", REPORT)
        scene.publisher.publish("topology", HELD)
        await scene.clock.move(PACE.urgent_s / 2)
        await scene.written("topology", REPORT)

    assert len(play(act).events.writes) == 1


def test_holds_of_unknown_containers_stay():
    """Without a look at the kubelet: holds, and who runs without devices; health is news."""
    bare = MissingDevices("v", "ns", "q", "main", "nvidia.com/gpu")
    known = replace(HELD, missing=(bare,))

    async def act(scene):
        await scene.written("topology", known)
        scene.publisher.publish("topology", DevicesReport(), keeps_holds=True)
        await scene.clock.move(5)
        assert (scene.publisher.is_published, len(scene.events.writes)) == (True, 1)
        scene.publisher.publish("topology", SICK, keeps_holds=True)
        await scene.clock.move(5)

    report = play(act).node.report
    assert (report.holds, report.missing) == (HELD.holds, (bare,))
    assert report.unhealthy == SICK.unhealthy


def test_health_does_not_wait():
    """Plans use an unhealthy GPU until the extender sees it; the rest is published with it."""

    async def act(scene):
        await scene.written("topology", REPORT)
        scene.publisher.publish("changed", REPORT)
        await scene.clock.move(0.5)
        assert len(scene.events.writes) == 1
        scene.publisher.publish("changed", SICK)
        await scene.clock.move(PACE.urgent_s)
        assert len(scene.events.writes) == 2

    scene = play(act)
    assert scene.node.wrote[1] == (names.TOPOLOGY, names.DEVICES)


def test_a_device_that_no_plan_gave_away_does_not_wait():
    """Until it is published the next pod may be planned onto it. What is free again can wait."""

    async def act(scene):
        await scene.written("topology", REPORT)
        scene.publisher.publish("topology", HELD)
        await scene.clock.move(PACE.urgent_s)
        assert len(scene.events.writes) == 2
        scene.publisher.publish("topology", REPORT)
        await scene.clock.move(PACE.coalesce_s / 2)
        assert len(scene.events.writes) == 2
        await scene.clock.move(PACE.coalesce_s / 2)

    assert len(play(act).events.writes) == 3


def test_a_reason_alone_is_no_hurry():
    """The same devices are bad as before."""
    other = DevicesReport(unhealthy=(UnhealthyDevice("GPU-1", "lost"),))

    async def act(scene):
        await scene.written("topology", SICK)
        scene.publisher.publish("topology", other)
        await scene.clock.move(PACE.coalesce_s / 2)
        assert len(scene.events.writes) == 1
        await scene.clock.move(PACE.coalesce_s / 2)

    assert play(act).node.report.unhealthy == other.unhealthy


def test_a_change_during_a_write_is_written_after_it():
    """And is given the time to be joined by others."""

    async def act(scene):
        def change():
            if len(scene.node.patches) == 2:
                scene.publisher.publish("later", REPORT)

        scene.node.during = change
        await scene.written("topology", REPORT)
        assert scene.node.annotations[names.TOPOLOGY] == "topology"
        await scene.clock.move(PACE.coalesce_s)

    scene = play(act)
    assert scene.node.annotations[names.TOPOLOGY] == "later"
    assert len(scene.events.writes) == 2


def test_an_idle_node_sends_no_request():
    """Not in a month, and not when it gets the same again."""

    async def act(scene):
        await scene.written("topology", REPORT)
        n_patches = len(scene.node.patches)
        await scene.clock.move(30 * 86_400)
        scene.publisher.publish("topology", REPORT)
        await settled()
        assert not scene.clock.has_sleepers
        assert len(scene.node.patches) == n_patches

    play(act)


def test_looking_again_restores_what_is_missing():
    """A recreated Node has no annotations; before anything is to publish it is not read."""

    async def act(scene):
        scene.publisher.refetch()
        await scene.clock.move(10)
        assert scene.node.patches == []
        await scene.written("topology", REPORT)
        scene.node.annotations = {}
        scene.publisher.refetch()
        assert not scene.publisher.is_published
        await scene.clock.move(PACE.coalesce_s)
        scene.publisher.refetch()
        await scene.clock.move(PACE.coalesce_s)

    scene = play(act)
    assert scene.node.annotations[names.TOPOLOGY] == "topology"
    assert scene.node.report.generation == 2
    assert [bool(one) for one in scene.node.patches] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("error", "reason", "delays_s"),
    [
        pytest.param(
            refusal(404, "NotFound", b""),
            WriteFailureReason.ABSENT,
            [0.5, 1.0, 2.0, 4.0],
            id="absent",
        ),
        pytest.param(
            FORBIDDEN, WriteFailureReason.REFUSED, [5.0, 10.0, 20.0, 40.0], id="forbidden"
        ),
        pytest.param(
            refusal(422, "Invalid", b""), WriteFailureReason.REFUSED, [5.0, 10.0], id="too large"
        ),
        pytest.param(
            refusal(409, "Conflict", b""), WriteFailureReason.TRANSIENT, [0.5, 1.0], id="conflict"
        ),
        pytest.param(BUSY, WriteFailureReason.TRANSIENT, [7.0, 7.0], id="busy, and says how long"),
        pytest.param(
            refusal(429, "Busy", b"", retry_after_s=86_400.0),
            WriteFailureReason.TRANSIENT,
            [300.0],
            id="busy for a day",
        ),
        pytest.param(UNANSWERED, WriteFailureReason.TRANSIENT, [0.5, 1.0], id="no answer"),
    ],
)
def test_what_fails_is_tried_again(error, reason, delays_s):
    """At growing intervals, each reported with what has to happen, until it works."""

    async def act(scene):
        scene.publisher.publish("topology", REPORT)
        await scene.clock.move(PACE.urgent_s)
        for n_failed, delay_s in enumerate(delays_s, 1):
            assert len(scene.events.faults) == n_failed
            assert not scene.publisher.is_published
            await scene.clock.move(delay_s - 0.01)
            assert len(scene.events.faults) == n_failed
            await scene.clock.move(0.01)
        assert scene.publisher.is_published

    scene = play(act, *[error] * len(delays_s))
    faults = scene.events.faults
    assert [(one.reason, one.delay_s) for one in faults] == [(reason, one) for one in delays_s]
    assert all(one.error is error for one in faults)


def test_success_forgets_failures():
    """The next fault begins with short delays."""

    async def act(scene):
        scene.publisher.publish("topology", REPORT)
        await scene.clock.move(60)
        scene.node.errors = [FORBIDDEN, UNANSWERED]
        scene.publisher.publish("changed", REPORT)
        await scene.clock.move(60)

    scene = play(act, FORBIDDEN, FORBIDDEN, UNANSWERED, UNANSWERED)
    assert [one.delay_s for one in scene.events.faults] == [5.0, 10.0, 0.5, 1.0, 5.0, 0.5]


def test_a_write_of_unknown_end_is_not_written_twice():
    """It may have been done: the generation must not move again."""

    async def act(scene):
        scene.node.errors = [None, UNANSWERED]
        scene.publisher.publish("topology", REPORT)
        await scene.clock.move(10)
        assert scene.publisher.is_published

    scene = play(act)
    assert [bool(one) for one in scene.node.patches] == [False, True, False]
    assert (scene.node.report.generation, scene.node.n_versions) == (1, 1)


def test_the_latest_is_written_after_a_failure():
    """What was wanted when it failed may be long untrue."""

    async def act(scene):
        scene.publisher.publish("first", REPORT)
        await scene.clock.move(PACE.urgent_s)
        scene.publisher.publish("second", SICK)
        await scene.clock.move(60)

    scene = play(act, FORBIDDEN)
    assert scene.node.wrote == [(names.TOPOLOGY, names.DEVICES)]
    assert scene.node.annotations[names.TOPOLOGY] == "second"
    assert scene.node.report.unhealthy == SICK.unhealthy


def test_a_report_that_no_annotation_holds_is_the_callers_error():
    """It would be refused for ever, with all else that is written."""
    huge = DevicesReport(unhealthy=(UnhealthyDevice("GPU-1", "x" * 300_000),))

    async def act(scene):
        with pytest.raises(CodecError):
            scene.publisher.publish("topology", huge)
        await scene.clock.move(10)

    assert play(act).node.patches == []
