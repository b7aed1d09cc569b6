"""The simulated machine: a recording that can be broken and mended while it runs."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from plugin.errors import ReadingError
from plugin.machine import EventKind, FaultCode, GpuEvent
from plugin.nvidia import VENDOR
from plugin.simulated import reader
from plugin.simulated.reader import LOST_REASON, SimulatedMachine
from tests.docs.markdown import ROOT, blocks
from tests.unit.plugin.machine_values import simulated_machine, xid_event
from tests.unit.plugin.offers import looked_at
from topology.model import NO_LINK
from topology.recordings import load_recording, recording_names

LOOK = GpuEvent(EventKind.LOST_EVENTS)


class Machine(SimulatedMachine):
    """A DGX-1 whose faults stand in a file that the test writes."""

    def __init__(self, folder: Path, recording: str = "dgx-1-v100") -> None:
        self.file = looked_at(folder / "faults.yaml")
        super().__init__(
            recording,
            node_name="node-1",
            hardware=VENDOR.simulated,
            faults=self.file,
            step_s=0.01,
        )
        self.uuids = [gpu.uuid for gpu in self.read().gpus]

    def becomes(self, text: str) -> None:
        """Replace the file as the documentation says."""
        beside = self.file.with_suffix(".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.file)


def numbers(events):
    """The codes of the faults among events; None for others."""
    return [None if event.code is None else event.code.number for event in events]


@pytest.fixture
def machine(tmp_path):
    """A machine of which nothing is wrong yet."""
    return Machine(tmp_path)


# --- the recording ---


@pytest.mark.parametrize("name", recording_names())
def test_every_recording_can_be_simulated(name):
    """The reading is the recording, with uuids."""
    machine = simulated_machine(name, node_name="n")
    reading, recording = machine.read(), load_recording(name)
    assert (reading.topology.links, reading.topology.pcie) == (recording.links, recording.pcie)
    assert reading.topology.fabrics == recording.fabrics
    for index, (gpu, recorded) in enumerate(zip(reading.gpus, recording.gpus, strict=True)):
        assert (gpu.index, gpu.nodes) == (index, (f"/dev/nvidia{index}",))
        assert gpu.gpu == replace(recorded, uuid=gpu.uuid)
        assert (gpu.is_partitioned, gpu.partitions, gpu.fault) == (False, (), None)
    assert reading.notes == (f"simulated from recording {name}",)
    assert reading.driver_version is None
    assert machine.faults() == {}
    assert machine.wait(0) == ()


def test_a_recording_may_be_a_file(tmp_path):
    """Whoever recorded a machine of his own tries it before it ships."""
    file = tmp_path / "mine.toml"
    file.write_text(
        'name="mine"\ntitle="mine"\nsource=["me"]\ncount=2\nmodel="X"\n', encoding="utf-8"
    )
    reading = simulated_machine(str(file), node_name="n").read()
    assert [gpu.gpu.model for gpu in reading.gpus] == ["X", "X"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no such file"),
        pytest.param(b"count = 1", id="no recording"),
        pytest.param(b"\xff", id="no text"),
    ],
)
def test_a_recording_that_is_none_is_refused(tmp_path, monkeypatch, content, check_message):
    """A plugin on an unintended machine would only confuse."""
    monkeypatch.chdir(tmp_path)
    file = Path("mine.toml")
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ReadingError) as caught:
        simulated_machine(str(file), node_name="n")
    check_message(caught.value)


def test_uuids_last_and_differ_between_nodes():
    """Two nodes that shared ids would count one GPU twice; a restart must not rename them."""
    uuids = [
        [gpu.uuid for gpu in simulated_machine("dgx-2", node_name=node).read().gpus]
        for node in ("a", "b", "a")
    ]
    assert uuids[0] == uuids[2]
    assert len({*uuids[0], *uuids[1]}) == 32
    form = r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    assert all(re.fullmatch(form, uuid) for uuid in uuids[0])


# --- faults ---


def test_a_lost_gpu_is_at_fault_until_it_is_found(machine):
    """It stays in the reading, as a real one does, and the others are as they were."""
    machine.becomes(f"lost: [3, {machine.uuids[5]}]")
    assert machine.faults() == {machine.uuids[3]: LOST_REASON, machine.uuids[5]: LOST_REASON}
    faults = [gpu.fault for gpu in machine.read().gpus]
    assert faults == [LOST_REASON if index in {3, 5} else None for index in range(8)]
    assert machine.wait(0) == ()
    machine.becomes("")
    assert machine.faults() == {}
    assert all(gpu.fault is None for gpu in machine.read().gpus)


def test_an_xid_is_reported_once(machine):
    """However often the file is read, and whatever else it comes to say."""
    machine.becomes("xid: [{gpu: 2, code: 79}, {code: 48, at: 1}]")
    known = xid_event(machine.uuids[2], 79)
    unknown = xid_event(None, 48)
    assert machine.wait(0) == (known, unknown)
    assert machine.wait(0) == ()
    machine.becomes("xid: [{code: 48, at: 2}, {gpu: 2, code: 79}, {code: 48, at: 1}]")
    assert machine.wait(0) == (unknown,)
    machine.becomes("")
    machine.becomes("xid: [{gpu: 2, code: 79}]")
    assert machine.wait(0) == ()


def test_an_xid_that_others_saw_first_is_not_lost(machine):
    """`read` and `faults` look at the file too."""
    machine.becomes("xid: [{gpu: 2, code: 79}]")
    machine.read()
    machine.faults()
    assert numbers(machine.wait(0)) == [79]


def test_links_go_down_and_come_back(machine):
    """Whoever watches has to read again, both times."""
    whole = machine.read().topology
    machine.becomes("links_down: [{gpus: [0, 3]}]")
    assert machine.wait(0) == (LOOK,)
    assert machine.read().topology.links[0][3] == NO_LINK
    machine.becomes("links_down: []")
    assert machine.wait(0) == (LOOK,)
    assert machine.read().topology == whole


def test_mig_instances_appear(tmp_path):
    """MIG strategies can be tried without a GPU, errors of single instances included."""
    machine = Machine(tmp_path, "dgx-a100")
    machine.becomes("{mig: {1: [3g.20gb, 1g.5gb]}, xid: [{gpu: 1, code: 48, instance: 1}]}")
    look, event = machine.wait(0)
    gpus = machine.read().gpus
    first, second = gpus[1].partitions
    assert [gpu.is_partitioned for gpu in gpus] == [index == 1 for index in range(8)]
    assert gpus[0].partitions == ()
    assert (first.kind, first.index, first.memory_mib) == ("MIG 3g.20gb", 0, 20480)
    assert (second.kind, second.index, second.memory_mib) == ("MIG 1g.5gb", 1, 5120)
    assert {first.parent, second.parent} == {machine.uuids[1]}
    assert first.id.startswith("MIG-")
    assert first.id != second.id
    assert first.address != second.address
    assert look == LOOK
    assert event == GpuEvent(
        EventKind.FAULT, machine.uuids[1], FaultCode("XID", 48), second.address
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"lost: [99]", "lost[0] is 99, expected a GPU of this machine", id="GPU"),
        pytest.param(b"[", "line 1, column 2: expected the node content", id="no YAML"),
        pytest.param(b"\xff\xfe\xfa", "codec can't decode", id="no text"),
    ],
)
def test_a_bad_file_changes_nothing_and_is_reported(machine, text, message):
    """Half a fault must not mend the others; the note says what to mend."""
    machine.becomes("{lost: [3], xid: [{code: 48}]}")
    assert len(machine.wait(0)) == 1
    machine.file.write_bytes(text)
    assert machine.wait(0) == (LOOK,)
    assert machine.wait(0) == ()
    _, note = machine.read().notes
    assert note.startswith(f"faults {machine.file} are as before: ")
    assert message in note
    assert machine.faults() == {machine.uuids[3]: LOST_REASON}
    machine.becomes("lost: [4]")
    assert machine.wait(0) == (LOOK,)
    assert len(machine.read().notes) == 1
    assert machine.faults() == {machine.uuids[4]: LOST_REASON}


def test_a_file_that_cannot_be_read_is_reported(machine):
    """A folder in its place, or one without permissions."""
    machine.file.mkdir()
    assert machine.wait(0) == (LOOK,)
    assert "are as before" in machine.read().notes[1]
    machine.file.rmdir()
    assert machine.wait(0) == (LOOK,)
    assert len(machine.read().notes) == 1


def test_a_file_that_is_gone_means_that_all_is_well(machine):
    """Nothing else could mean that more plainly."""
    machine.becomes("lost: [3]")
    assert len(machine.faults()) == 1
    away = machine.file.rename(machine.file.with_suffix(".away"))
    assert machine.faults() == {}
    away.rename(machine.file)
    assert len(machine.faults()) == 1


def test_a_file_is_read_only_where_it_changed(machine, monkeypatch):
    """Four looks a second, for ever, must not be four parsings."""
    machine.becomes("lost: [3]")
    assert len(machine.faults()) == 1
    monkeypatch.setattr(reader, "parse_faults", None)
    assert len(machine.faults()) == 1
    os.utime(machine.file, ns=(1, 1))
    with pytest.raises(TypeError):
        machine.faults()


# --- waiting ---


def test_waiting_looks_again_and_ends_when_its_time_is_over(machine):
    """The watch has other questions."""
    n_looks = machine.file.n_looks
    assert machine.wait(0) == ()
    assert machine.file.n_looks == n_looks + 1
    assert machine.wait(0.02) == ()
    assert machine.file.n_looks >= n_looks + 3


def test_waiting_ends_with_an_event(machine):
    """A fault is reported in a fraction of a second, not when the waiting is over."""
    events: list[GpuEvent] = []
    waiting = threading.Thread(target=lambda: events.extend(machine.wait(60)))
    waiting.start()
    machine.becomes("xid: [{gpu: 0, code: 79}]")
    waiting.join(30)
    assert numbers(events) == [79]


def test_closing_ends_the_waiting(machine):
    """A program that ends does not wait for events."""
    waiting = threading.Thread(target=machine.wait, args=(60,))
    waiting.start()
    machine.close()
    waiting.join(30)
    assert not waiting.is_alive()


# --- the page ---


def test_the_page_s_example_works(tmp_path):
    """docs/simulate.md shows every key; what it shows must be so."""
    (example,) = [b.text for b in blocks(ROOT / "docs" / "simulate.md") if b.language == "yaml"]
    machine = Machine(tmp_path)
    machine.becomes(example)
    events, reading = machine.wait(0), machine.read()
    assert reading.notes == ("simulated from recording dgx-1-v100",)
    assert set(machine.faults()) == {machine.uuids[3]}
    assert numbers(events) == [None, 94, 94, 48, 48]
    assert [event.uuid for event in events[1:]] == [*[machine.uuids[0]] * 2, None, machine.uuids[5]]
    split = reading.gpus[5].partitions
    assert [one.kind for one in split] == ["MIG 3g.40gb", "MIG 1g.10gb"]
    assert events[4].partition == split[1].address
    assert reading.topology.links[0][3].n_links == 1
    assert reading.topology.links[1][2] == NO_LINK
