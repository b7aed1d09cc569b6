"""A reading for programs and for people."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from plugin.machine import MachineReading
from plugin.nvidia import VENDOR
from plugin.observe import reading_text
from plugin.observe.reading_json import SCHEMA_VERSION, reading_json
from tests.unit.plugin.machine_values import gpu_reading, mig_device
from topology.recordings import load_recording
from topology.report.machine import report_show


def reading_of(name, **facts):
    """A reading of a recorded machine."""
    topology = load_recording(name)
    gpus = tuple(gpu_reading(i, f"GPU-{i}") for i in range(topology.n_gpus))
    topology = replace(topology, gpus=tuple(one.gpu for one in gpus))
    return MachineReading(**{"gpus": gpus, "topology": topology, **facts})


def test_json_holds_the_whole_reading():
    """Programs compare it with another tool's: the topology part is that of `topology show`."""
    reading = reading_of(
        "dgx-1-v100",
        driver_version="580.65.06",
        numa_distances=((0, (10, 21)), (1, (21, 10))),
        notes=("a note",),
    )
    body = json.loads(reading_json(reading, VENDOR.facts_of))
    assert set(body) == {
        *("schema_version", "driver_version", "gpus", "numa_distances", "topology", "notes")
    }
    assert body["schema_version"] == SCHEMA_VERSION == 1
    assert body["driver_version"] == "580.65.06"
    assert body["numa_distances"] == {"0": [10, 21], "1": [21, 10]}
    assert body["notes"] == ["a note"]
    assert body["topology"] == json.loads(json.dumps(asdict(report_show(reading.topology))))
    assert set(body["gpus"][0]) == {
        *("index", "uuid", "pci_bus_id", "model", "memory_mib", "numa_node", "minor"),
        *("n_c2c_links", "is_mig_enabled", "instances", "fault"),
    }


def test_json_names_mig_devices():
    """An instance has uuid, profile, index and ids."""
    reading = reading_of("8x-t4")
    instance = mig_device("MIG-1", "1g.10gb", 0, 7, 0)
    gpus = (
        replace(reading.gpus[0], is_partitioned=True, partitions=(instance,)),
        *reading.gpus[1:],
    )
    body = json.loads(reading_json(replace(reading, gpus=gpus), VENDOR.facts_of))
    assert body["gpus"][0]["instances"] == [
        {
            "uuid": "MIG-1",
            "profile": "1g.10gb",
            "index": 0,
            "gpu_instance": 7,
            "compute_instance": 0,
            "memory_mib": None,
        }
    ]
    text = reading_text(replace(reading, gpus=gpus), "MIG instances")
    assert (
        "  0  ?             on             GPU-0\n                   MIG 1g.10gb    MIG-1\n" in text
    )


def test_text_shows_devices_topology_and_notes():
    """What people look for first: which GPU is bad, and why something is unknown."""
    reading = reading_of("8x-t4", driver_version="580.65.06", notes=("a note",))
    gpus = (replace(reading.gpus[0], nodes=("/dev/nvidia3",), fault="lost"), *reading.gpus[1:])
    lines = reading_text(replace(reading, gpus=gpus), "MIG instances").splitlines()
    assert lines[:4] == [
        "Devices",
        "driver  580.65.06",
        "GPU  device nodes  MIG instances  uuid   fault",
        "  0  /dev/nvidia3  off            GPU-0  lost",
    ]
    assert "PCIe levels" in lines
    assert lines[-3:] == ["", "Notes", "a note"]


def test_text_without_notes_or_driver():
    """A question mark stands for what is unknown; no empty heading."""
    lines = reading_text(reading_of("8x-t4"), "MIG instances").splitlines()
    assert lines[1] == "driver  ?"
    assert "Notes" not in lines


def test_text_prints_no_control_characters():
    """A uuid or note from outside must not reach the terminal raw."""
    assert "\x1b" not in reading_text(reading_of("8x-t4", notes=("red \x1b[31m",)), "MIG instances")
