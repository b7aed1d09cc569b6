"""A GPU whose driver calls hang, from the library up to what would be published of the machine."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest

from plugin.health import HealthState, HealthTimes, HealthWatch
from plugin.machine import NO_ANSWER, EventKind
from plugin.nvidia.xids import XidRules
from tests.changes import Changes
from tests.fake_nvml import fake_of, installed, uuid_of
from tests.fake_sysfs import FakeSysfs
from tests.unit.plugin.machine_values import device
from tests.unit.plugin.patient_machine import PatientMachine
from topology.recordings import load_recording

UUIDS = [uuid_of(i) for i in range(8)]


class View:
    """What a plugin would get, and the log."""

    def __init__(self):
        self.unhealthy = []

    def devices(self):
        return [device(uuid, i, uuid) for i, uuid in enumerate(UUIDS)]

    def see_health(self, unhealthy):
        self.unhealthy.append(dict(unhealthy))

    def see_reading(self, reading):
        assert len(reading.gpus) == len(UUIDS)

    def see_condition(self, condition):
        self.condition = condition

    def gpu_event(self, event, *, counts):
        # The others' events are registered anew when GPU 3 is no longer read.
        assert (event.kind, counts) == (EventKind.LOST_EVENTS, False)

    def reader_failed(self, what, reason, *, n_failures):
        raise AssertionError((what, reason, n_failures))

    def reader_works(self, what):
        raise AssertionError(what)


class Machine(PatientMachine):
    """Late calls return when a poll or a reading waits for them no longer."""

    def read(self):
        try:
            return super().read()
        finally:
            self.give_up()

    def faults(self):
        try:
            return super().faults()
        finally:
            self.give_up()


def test_a_gpu_that_is_always_late_leaves_the_list_once(tmp_path):
    """GPU 3 answers each call after its deadline: one change of the Node, and seven GPUs stay."""
    fake, view = fake_of(load_recording("dgx-h100")), View()
    with installed(fake), contextlib.closing(Machine(FakeSysfs(tmp_path).reader)) as machine:
        watch = HealthWatch(
            machine,
            view,
            log=view,
            reading=machine.read(),
            state=HealthState(XidRules()),
            times=HealthTimes(wait_s=0.05, poll_s=0.1, settle_s=0, gap_s=0.1),
        )

        async def go(hang):
            calls, loop = Changes(), asyncio.get_running_loop()
            hang.on_call = partial(loop.call_soon_threadsafe, calls.note)
            task = asyncio.ensure_future(watch.run())
            task.add_done_callback(calls.note)
            await calls.until(lambda: task.done() or (view.unhealthy and hang.n_calls >= 4))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with machine.hang() as hang:
            fake.gpus[3].hangs = hang
            asyncio.run(go(hang))
    assert view.unhealthy == [{uuid_of(3): NO_ANSWER}]
