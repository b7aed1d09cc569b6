"""A recorded machine, replayed, is read as the machine that was recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugin import command_line as program
from plugin.nvidia.nvml.reader import NvmlMachine
from plugin.record import recorder
from tests import programs
from tests.fake_nvml import FakeMig, bus_id_of, fake_of, installed
from tests.fake_sysfs import FakeSysfs, write_machine
from tests.replayed_nvml import ReplayedNvml, members_of, write_kernel
from topology.recordings import load_recording

if TYPE_CHECKING:
    from pathlib import Path

RECORDINGS = ("dgx-1-v100", "dgx-h100", "4x-l40s")
CPU = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nserial\t: 17\n"


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """None of our settings in the environment, and no program of the driver's on the path."""
    for variable in ("NODE_NAME", "CONFIG_FILE", "KUBECONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(recorder, "EVENTS_S", 0.01)


def roots(root: Path, recording: str) -> tuple[str, ...]:
    """Flags for a /sys and a /proc of a recorded machine, which are written there."""
    fake = FakeSysfs(root)
    topology = load_recording(recording)
    write_machine(fake, topology, bus_id_of)
    fake.port("net", "eth0", fake.device("pci0009:00", "0009:00:00.0", pci_class="0x020000"))
    fake.port("net", "lo", None)
    fake.numa({0: "10 21", 1: "21 10"})
    fake.cpuinfo(f"{CPU}\n{CPU}")
    return ("--sysfs-root", str(root / "sys"), "--proc-root", str(root / "proc"))


def recorded(out: Path, *arguments: str) -> dict[str, str]:
    """Run `record`; what the bundle holds."""
    done = programs.called(program.main, "record", str(out), *arguments)
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    return members_of(out)


def read_again(members: dict[str, str], root: Path) -> Any:
    """The reading of a replayed bundle, as `discover --json` has it."""
    kernel = write_kernel(members, root)
    flags = ("--sysfs-root", str(kernel.sys), "--proc-root", str(kernel.proc))
    with installed(ReplayedNvml(members)):
        done = programs.called(program.main, "discover", "--json", *flags)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_replayed_machine_is_read_as_it_was(tmp_path, recording):
    """Every fact of the reading comes from the bundle: GPUs, links, levels, NICs, NUMA nodes."""
    flags = roots(tmp_path / "first", recording)
    with installed(fake_of(load_recording(recording))):
        members = recorded(tmp_path / "bundle.tar.gz", *flags)
    first = json.loads(members["reading.json"])
    assert len(first["gpus"]) == load_recording(recording).n_gpus
    assert first["topology"]["nics"]
    assert read_again(members, tmp_path / "again") == first


def test_what_fails_is_replayed_too(tmp_path):
    """A lost GPU, MIG devices, and calls that an old driver lacks."""
    fake = fake_of(load_recording("dgx-a100"))
    fake.gpus[2].error = 15
    fake.gpus[5].mig = {3: FakeMig("MIG-5d8a2b8e-1c1d-4a55-9b1e-1f6f5a0c7d21", "A100 MIG 1g.5gb")}
    fake.missing.add("nvmlDeviceGetTopologyCommonAncestor")
    flags = roots(tmp_path / "first", "dgx-a100")
    with installed(fake):
        members = recorded(tmp_path / "bundle.tar.gz", *flags)
    first = json.loads(members["reading.json"])
    calls = [json.loads(line) for line in members["library-calls.jsonl"].splitlines()]
    lacking = {call["call"] for call in calls if "arguments" not in call}
    assert lacking == {"nvmlDeviceGetTopologyCommonAncestor"}
    assert [len(gpu["instances"]) for gpu in first["gpus"]].count(1) == 1
    assert read_again(members, tmp_path / "again") == first


def test_a_return_code_that_pynvml_does_not_know_is_recorded(tmp_path):
    """It calls nvmlErrorString for its text: the one function that returns no code."""
    fake = fake_of(load_recording("4x-l40s"))
    fake.gpus[1].errors["nvmlDeviceGetMinorNumber"] = 4711
    fake.__dict__["nvmlErrorString"] = lambda code: f"number {code}".encode()
    with installed(fake):
        members = recorded(tmp_path / "bundle.tar.gz", *roots(tmp_path / "first", "4x-l40s"))
    calls = [json.loads(line) for line in members["library-calls.jsonl"].splitlines()]
    codes = {call["code"] for call in calls if call["call"] == "nvmlDeviceGetMinorNumber"}
    assert codes == {0, 4711}
    first = json.loads(members["reading.json"])
    assert [note for note in first["notes"] if "number 4711" in note]
    assert read_again(members, tmp_path / "again")["gpus"] == first["gpus"]


def test_pynvml_is_left_as_it_was(tmp_path):
    """What reads the machine after a recording reads the machine, and is not recorded."""
    fake = fake_of(load_recording("4x-l40s"))
    with installed(fake):
        members = recorded(tmp_path / "bundle.tar.gz", *roots(tmp_path / "root", "4x-l40s"))
        n_before = fake.n_calls
        machine = NvmlMachine(FakeSysfs(tmp_path / "root").reader)
        uuids = [gpu.uuid for gpu in machine.read().gpus]
        machine.close()
    assert fake.n_calls > n_before
    assert uuids == [gpu.uuid for gpu in fake.gpus]
    assert uuids[0] not in members["library-calls.jsonl"]
