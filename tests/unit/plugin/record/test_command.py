"""`coterie-plugin record`: what the bundle holds, what it leaves out, how it ends."""

from __future__ import annotations

import io
import json
import platform
import stat
import sys
import threading

import pytest

from plugin import command_line as program
from plugin.record import recorder
from tests import programs
from tests.fake_nvml import FakeFabric, fake_of, installed
from tests.fake_sysfs import FakeSysfs
from tests.replayed_nvml import members_of
from topology.errors import InvalidTopology
from topology.model import decode_topology
from topology.recordings import load_recording

RECORDING = "dgx-a100"
NODE = "gpu-node-17"
UUID = "GPU-6d1c4a90-0f0e-4f3b-9d2a-3c1f5a7b9e{:02x}"
SMI = """#!/bin/sh
case "$1" in
-q)
  echo "    Product Name                          : NVIDIA A100-SXM4-80GB"
  echo "    Serial Number                         : 1320220000001"
  echo "    GPU UUID                              : GPU-6d1c4a90-0f0e-4f3b-9d2a-3c1f5a7b9e00"
  echo "    GPU PDI                               : N/A"
  echo "        Chassis Serial Number             : 0"
  echo "            Name                          : /home/jane/train.py" ;;
topo) echo "GPU0 X on gpu-node-17" ;;
nvlink) echo "GPU 0: NVIDIA A100"; echo "no such link" >&2; exit 6 ;;
esac
"""


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """None of our settings in the environment, and no program of the driver's on the path."""
    for variable in ("CONFIG_FILE", "KUBECONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NODE_NAME", NODE)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(recorder, "EVENTS_S", 0.01)


@pytest.fixture
def fake():
    """A DGX A100 whose UUIDs are not those of a pseudonym."""
    fake = fake_of(load_recording(RECORDING))
    fake.ancestors.clear()  # by UUID
    for index, gpu in enumerate(fake.gpus):
        gpu.uuid = UUID.format(index)
    return fake


@pytest.fixture
def root(tmp_path):
    """An empty /sys and /proc, and a driver's root with nothing in it."""
    for folder in ("sys", "proc", "driver"):
        (tmp_path / folder).mkdir()
    return tmp_path


def record(root, *arguments, out="bundle.tar.gz"):
    """Run the command; how it ended."""
    flags = (
        *("--sysfs-root", str(root / "sys"), "--proc-root", str(root / "proc")),
        *("--driver-root-ctr-path", str(root / "driver")),
    )
    return programs.called(program.main, "record", str(root / out), *flags, *arguments)


def bundle(root, *arguments):
    """Run the command; what the bundle holds."""
    done = record(root, *arguments)
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    return members_of(root / "bundle.tar.gz")


def test_it_holds_the_machine(fake, root):
    """Calls with their codes, times and bytes, the reading, the faults, and what is published."""
    fake.gpus[7].recovery_action = 1
    with installed(fake):
        members = bundle(root)
    calls = [json.loads(line) for line in members["library-calls.jsonl"].splitlines()]
    version = next(one for one in calls if one["call"] == "nvmlSystemGetDriverVersion")
    assert version["code"] == 0
    assert version["arguments"] == [{"size": 80, "text": "580.65.06"}, 80]
    assert all(isinstance(one["us"], int) for one in calls if "arguments" in one)
    assert len(calls) >= fake.n_calls
    reading = json.loads(members["reading.json"])
    assert reading["driver_version"] == "580.65.06"
    assert list(json.loads(members["faults.json"])) == [reading["gpus"][7]["uuid"]]
    published = decode_topology(members["published-topology.json"])
    assert [gpu.uuid for gpu in published.gpus] == [gpu["uuid"] for gpu in reading["gpus"]]
    assert "second-reading.json" not in members


def test_it_says_where_it_was_recorded(fake, root):
    """Version, account, rights, settings and what is missing."""
    (root / "proc/self").mkdir()
    (root / "proc/self/status").write_text("Name:\tpython\nCapEff:\t00000000a80425fb\n")
    with installed(fake):
        about = json.loads(bundle(root)["about.json"])
    assert about["schema_version"] == 1
    assert about["capabilities"] == "00000000a80425fb"
    assert about["kernel"] == platform.release()
    assert about["settings"]["sysfs_root"] == str(root / "sys")
    assert about["identifiers"] == "replaced"
    assert [note.partition(":")[0] for note in about["notes"]] == [
        "nvidia-smi -q",
        "nvidia-smi topo -m",
        "nvidia-smi nvlink -s",
        "nvidia-smi nvlink -c",
        "nvidia-smi nvlink -p",
    ]


def test_progress_and_what_is_missing_are_shown(fake, root):
    """On standard error, a line each; the last one says where the bundle is."""
    with installed(fake):
        shown = record(root).stderr.splitlines()
    assert shown[0] == "reading the machine"
    assert "running nvidia-smi -q" in shown
    assert "reading /sys, /proc and /dev" in shown
    assert (
        "missing: nvidia-smi -q: 'nvidia-smi' cannot be started: No such file or directory" in shown
    )
    assert shown[-1] == f"written to {root / 'bundle.tar.gz'}"


def test_programs_of_the_driver_are_run(fake, root):
    """Those of the driver's root; what one prints before it fails is kept."""
    smi = root / "driver/usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text(SMI)
    smi.chmod(0o755)
    with installed(fake):
        members = bundle(root)
    assert members["programs/nvidia-smi-topo-m.txt"] == "GPU0 X on host\n"
    assert members["programs/nvidia-smi-nvlink-s.txt"] == "GPU 0: NVIDIA A100\nno such link\n"
    assert "ended with 6" in members["about.json"]


def test_nothing_identifies_the_machine(fake, root):
    """UUIDs are the same pseudonyms everywhere; serial numbers, hosts and processes are removed."""
    smi = root / "driver/usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text(SMI)
    smi.chmod(0o755)
    with installed(fake):
        members = bundle(root)
    whole = "\n".join(members.values())
    for secret in ("6d1c4a90", b"6d1c4a90".hex(), "1320220000001", NODE, "jane"):
        assert secret not in whole
    first = json.loads(members["reading.json"])["gpus"][0]["uuid"]
    text = members["programs/nvidia-smi-q.txt"]
    assert f"GPU UUID                              : {first}" in text
    assert "Product Name                          : NVIDIA A100-SXM4-80GB" in text
    assert "Serial Number                         : removed" in text
    assert "Chassis Serial Number             : 0" in text
    assert "GPU PDI                               : N/A" in text
    assert f'"text": "{first}"' in members["library-calls.jsonl"]
    assert first in members["published-topology.json"]


def test_identifiers_are_kept_on_request(fake, root):
    """For a bundle that stays with its owner."""
    with installed(fake):
        members = bundle(root, "--keep-ids")
    assert json.loads(members["reading.json"])["gpus"][3]["uuid"] == UUID.format(3)
    assert json.loads(members["about.json"])["identifiers"] == "kept"
    assert json.loads(members["about.json"])["settings"]["node_name"] == NODE


def test_the_fabric_is_a_pseudonym_too(root):
    """Its UUID is binary in the call and text in what is made of it."""
    fake = fake_of(load_recording("dgx-h100"))
    for gpu in fake.gpus:
        gpu.fabric = FakeFabric(cluster_uuid=bytes.fromhex("77" * 16))
    with installed(fake):
        members = bundle(root)
    whole = "\n".join(members.values())
    assert "77" * 16 not in whole
    assert "77777777-7777" not in whole
    fabric = next(
        json.loads(line)
        for line in members["library-calls.jsonl"].splitlines()
        if "FabricInfoV" in line
    )
    pseudonym = bytes.fromhex(fabric["arguments"][1]["bytes"])[4:20]
    assert pseudonym.startswith(bytes(6) + b"\x80\x00\x80\x00")


def test_kernel_files_are_recorded(fake, root):
    """What names a processor, not its serial number; the driver's files; device nodes."""
    kernel = FakeSysfs(root)
    kernel.cpuinfo(
        "CPU implementer\t: 0x41\nBogoMIPS\t: 50.00\nSerial\t\t: 10000000\n\nprocessor: 1\n"
    )
    information = root / "proc/driver/nvidia/gpus/0000:1a:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text(f"Model: \t\t NVIDIA A100\nGPU UUID: \t {UUID.format(0)}\n")
    (root / "driver/dev/nvidia-caps").mkdir(parents=True)
    (root / "driver/dev/nvidia0").write_text("")
    (root / "driver/dev/nvidia9").symlink_to("nowhere")
    (root / "driver/dev/null").write_text("")
    with installed(fake):
        members = bundle(root)
    assert members["proc/cpuinfo"] == "CPU implementer\t: 0x41\n"
    first = json.loads(members["reading.json"])["gpus"][0]["uuid"]
    assert first in members["proc/driver/nvidia/gpus/0000:1a:00.0/information"]
    (node,) = json.loads(members["dev.json"])
    mode = stat.S_IMODE((root / "driver/dev/nvidia0").stat().st_mode)
    assert (node["path"], node["kind"], node["mode"]) == ("/dev/nvidia0", "other", f"{mode:04o}")


def test_a_link_that_leads_nowhere_is_left_out(fake, root):
    """A device that is unplugged meanwhile costs itself."""
    FakeSysfs(root).device("pci0000:00", "0000:1a:00.0")
    (root / "sys/bus/pci/devices/0000:1b:00.0").symlink_to("nowhere")
    with installed(fake):
        recorded = json.loads(bundle(root)["sys.json"])
    assert list(recorded["links"]) == ["bus/pci/devices/0000:1a:00.0"]


def test_ports_have_their_rate(fake, root):
    """What a NIC carries, of those on PCI alone."""
    kernel = FakeSysfs(root)
    kernel.port("infiniband", "mlx5_0", kernel.device("pci0000:00", "0000:1a:00.0"))
    kernel.port("infiniband", "rxe0", None)
    place = "devices/pci0000:00/0000:1a:00.0/infiniband/mlx5_0"
    for port in (place, "devices/virtual/infiniband/rxe0"):
        (root / "sys" / port / "ports/1").mkdir(parents=True)
        (root / "sys" / port / "ports/1/rate").write_text("400 Gb/sec (4X NDR)\n")
    with installed(fake):
        recorded = json.loads(bundle(root)["sys.json"])
    rates = {name: text for name, text in recorded["files"].items() if name.endswith("rate")}
    assert rates == {f"{place}/ports/1/rate": "400 Gb/sec (4X NDR)"}
    assert recorded["links"]["class/infiniband/mlx5_0"] == place


def test_a_virtual_function_shows_its_owner(fake, root):
    """Else it would be read as a NIC of its own."""
    kernel = FakeSysfs(root)
    owner = kernel.device("pci0000:00", "0000:1a:00.0")
    (kernel.device("pci0000:00", "0000:1a:00.1") / "physfn").symlink_to(owner)
    with installed(fake):
        links = json.loads(bundle(root)["sys.json"])["links"]
    assert links["devices/pci0000:00/0000:1a:00.1/physfn"] == "devices/pci0000:00/0000:1a:00.0"


def test_without_a_driver_the_rest_is_recorded(root):
    """That is when a bundle is needed most."""
    with installed(None):
        done = record(root)
    members = members_of(root / "bundle.tar.gz")
    assert done.exit_code == 0
    assert "missing: reading the machine: libnvidia-ml.so.1 not found" in done.stderr
    assert {"about.json", "sys.json", "dev.json"} <= set(members)
    assert "reading.json" not in members


def test_a_call_that_does_not_return_is_shown(fake, root, monkeypatch):
    """Its line has no code; the bundle is written without the reading."""
    monkeypatch.setattr(recorder, "READ_S", 0.2)
    hangs = threading.Event()
    fake.after["nvmlInitWithFlags"] = hangs.wait
    with installed(fake):
        try:
            done = record(root)
        finally:
            hangs.set()
            for thread in threading.enumerate():
                if thread.name == recorder.READ_THREAD:
                    thread.join()
    members = members_of(root / "bundle.tar.gz")
    open_calls = [
        json.loads(line)
        for line in members["library-calls.jsonl"].splitlines()
        if '"code": null' in line
    ]
    assert [call["call"] for call in open_calls] == ["nvmlInitWithFlags"]
    assert "reading the machine: no end after 0.2 s" in done.stderr


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), InvalidTopology("no tree")])
def test_a_machine_that_cannot_be_read_is_noted(fake, root, monkeypatch, error):
    """Whatever the reader may raise, the rest of the bundle is what a person needs then."""

    def fail(_self):
        raise error

    monkeypatch.setattr("plugin.nvidia.nvml.reader.NvmlMachine.read", fail)
    with installed(fake):
        members = bundle(root)
    assert "reading.json" not in members
    assert f"reading the machine: {error}" in json.loads(members["about.json"])["notes"]


def test_gpus_without_events_are_recorded(fake, root):
    """Only polls find their faults; pseudonyms as elsewhere."""
    fake.gpus[2].supported_events = 0
    with installed(fake):
        members = bundle(root)
    deaf = json.loads(members["reading.json"])["gpus"][2]["uuid"]
    condition = json.loads(members["condition.json"])
    assert condition == {"without_events": [deaf], "restart_reason": ""}


def test_two_readings_that_differ_are_both_kept(fake, root):
    """What changes by itself is a finding."""

    def unplug():
        fake.gpus[1].memory_bytes = 1 << 30

    fake.after["nvmlEventSetCreate"] = unplug
    with installed(fake):
        members = bundle(root)
    sizes = [
        json.loads(members[name])["gpus"][1]["memory_mib"]
        for name in ("reading.json", "second-reading.json")
    ]
    assert (sizes[0] > 1024, sizes[1]) == (True, 1024)
    assert "two readings differ" in members["about.json"]


def test_events_are_recorded(fake, root):
    """Those that come while it waits."""
    fake.after["nvmlDeviceRegisterEvents"] = lambda: fake.happen(0, 79)
    with installed(fake):
        members = bundle(root)
    events = json.loads(members["events.json"])
    assert {key: events[0][key] for key in ("kind", "code")} == {"kind": "xid", "code": 79}


def test_a_topology_that_cannot_be_published_is_noted(fake, root, tmp_path):
    """Measured figures of another machine, say."""
    (tmp_path / "figures.json").write_text("{}")
    with installed(fake):
        members = bundle(root, "--measurements", str(tmp_path / "figures.json"))
    assert "published-topology.json" not in members
    assert "the published topology: setting measurements" in members["about.json"]


def test_standard_output_can_be_the_file(fake, root, monkeypatch):
    """For `kubectl exec`, in whose container nothing can be written."""
    written = io.BytesIO()
    flags = ("--sysfs-root", str(root / "sys"), "--proc-root", str(root / "proc"))
    with installed(fake), monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(written))
        program.main(["record", "-", *flags])
        sys.stdout.flush()
        assert "reading.json" in members_of(written.getvalue())


def test_a_file_that_exists_is_not_overwritten(fake, root):
    """It may be the only record of a machine that has changed since."""
    (root / "bundle.tar.gz").write_text("precious")
    with installed(fake):
        done = record(root)
    assert (done.exit_code, fake.n_calls) == (2, 0)
    assert f"file {root / 'bundle.tar.gz'} exists, expected the name of a new file" in done.stderr
    assert (root / "bundle.tar.gz").read_text() == "precious"


def test_a_file_that_cannot_be_written_is_named(fake, root):
    """Before anything is recorded."""
    with installed(fake):
        done = record(root, out="no/such/bundle.tar.gz")
    assert (done.exit_code, fake.n_calls) == (2, 0)
    assert "cannot be written: No such file or directory" in done.stderr


def test_no_half_a_bundle_is_left(fake, root, monkeypatch):
    """An end by ctrl-C, say."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "sys_files", interrupted)
    with installed(fake), pytest.raises(KeyboardInterrupt):
        record(root)
    assert not (root / "bundle.tar.gz").exists()


def test_a_simulated_machine_is_refused(root):
    """There is nothing to record of it."""
    done = record(root, "--simulate", "dgx-1-v100")
    assert done.exit_code == 2
    assert "setting simulate: record describes this machine" in done.stderr
