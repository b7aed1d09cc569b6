"""A GPU whose driver calls hang, from the library up to what would be published of the machine."""

from __future__ import annotations

import asyncio
import threading

import pytest

from plugin.health import HealthState, HealthTimes, HealthWatch
from plugin.machine import NO_ANSWER, EventKind
from plugin.nvidia.nvml.reader import NvmlMachine
from plugin.nvidia.xids import XidRules
from tests.fake_nvml import fake_of, installed, uuid_of
from tests.fake_sysfs import FakeSysfs
from tests.unit.plugin.machine_values import device
from topology.recordings import load_recording

UUIDS = [uuid_of(i) for i in range(8)]


class View:
    """What an agent would get, and the log."""

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


class Late(threading.Event):
    """Calls of the GPU return, but not before `give_up`; once it is set they return at once.

    `callers` are the threads that made them, one for each poll, reading or registration.
    """

    def __init__(self):
        super().__init__()
        self.callers: set[threading.Thread] = set()
        self._given_up = threading.Event()

    def wait(self, timeout=None):
        self.callers.add(threading.current_thread())
        given_up = self._given_up
        return self.is_set() or given_up.wait(timeout)

    def set(self):
        super().set()
        self.give_up()

    def give_up(self):
        given_up, self._given_up = self._given_up, threading.Event()
        given_up.set()


class Machine(NvmlMachine):
    """Late calls return when a poll or a reading waits for them no longer."""

    def __init__(self, sysfs, late):
        super().__init__(sysfs)
        self._late = late

    def read(self):
        try:
            return super().read()
        finally:
            self._late.give_up()

    def faults(self):
        try:
            return super().faults()
        finally:
            self._late.give_up()


def test_a_gpu_that_is_always_late_leaves_the_list_once(tmp_path, monkeypatch):
    """GPU 3 answers each call after its deadline: one change of the Node, and seven GPUs stay."""
    monkeypatch.setattr("plugin.nvidia.nvml.reader.POLL_S", 1.0)
    monkeypatch.setattr("plugin.nvidia.nvml.reader.READ_S", 1.0)
    fake, view, late = fake_of(load_recording("dgx-h100")), View(), Late()

    with installed(fake):
        machine = Machine(FakeSysfs(tmp_path).reader, late)
        reading = machine.read()
        times = HealthTimes(wait_s=0.05, poll_s=0.1, settle_s=0, gap_s=0.1)
        watch = HealthWatch(
            machine,
            view,
            log=view,
            reading=reading,
            state=HealthState(XidRules()),
            times=times,
        )
        fake.gpus[3].hangs = late

        async def go():
            task = asyncio.ensure_future(watch.run())
            async with asyncio.timeout(60):
                while not view.unhealthy or len(late.callers) < 4:
                    if task.done():
                        await task
                    await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        try:
            asyncio.run(go())
        finally:
            late.set()
            machine.close()
    assert view.unhealthy == [{uuid_of(3): NO_ANSWER}]
