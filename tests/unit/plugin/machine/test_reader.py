"""What a reading is."""

from __future__ import annotations

import pytest

from plugin.machine import GpuReading, MachineReading
from tests.machines import machine
from topology.errors import InvalidTopology
from topology.model import Gpu


def test_a_reading_and_its_topology_are_of_the_same_gpus():
    """Places in one are places in the other: GPU 1 must not be another's links."""
    topology = machine([Gpu(uuid="GPU-a"), Gpu(uuid="GPU-b")])
    gpus = (GpuReading(0, "GPU-a"), GpuReading(1, "GPU-b"))
    assert MachineReading(gpus, topology).gpus == gpus
    for others in (gpus[::-1], gpus[:1]):
        with pytest.raises(InvalidTopology, match="expected those read"):
            MachineReading(others, topology)
