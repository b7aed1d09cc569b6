"""A GPU whose driver calls hang, from the library up to what would be published of the machine."""

from __future__ import annotations

import asyncio
import threading
import time

from plugin.health import HealthState, HealthTimes, HealthWatch
from plugin.machine import NO_ANSWER
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
        raise AssertionError((event, counts))

    def reader_failed(self, what, reason, *, n_failures):
        raise AssertionError((what, reason, n_failures))

    def reader_works(self, what):
        raise AssertionError(what)


def test_a_gpu_that_is_always_late_leaves_the_list_once(tmp_path, monkeypatch):
    """GPU 3 takes twice the deadline for each call: one change of the Node, and seven GPUs stay."""
    monkeypatch.setattr("plugin.nvidia.nvml.reader.POLL_S", 0.1)
    monkeypatch.setattr("plugin.nvidia.nvml.reader.READ_S", 0.1)
    fake, view = fake_of(load_recording("dgx-h100")), View()

    class Slow(threading.Event):
        """Calls of the GPU return, but late."""

        def wait(self, timeout=None):
            assert timeout is not None
            time.sleep(0.2)
            return True

    with installed(fake):
        machine = NvmlMachine(FakeSysfs(tmp_path).reader)
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
        fake.gpus[3].hangs = Slow()

        async def go():
            task = asyncio.ensure_future(watch.run())
            await asyncio.sleep(1.5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(go())
        fake.gpus[3].hangs = None
        machine.close()
    assert view.unhealthy == [{uuid_of(3): NO_ANSWER}]
