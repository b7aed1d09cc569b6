"""The command line: what it prints, what it writes, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from itertools import combinations

import pytest
import structlog

from plugin import command_line as program
from plugin.observe import reading_text
from tests import programs
from tests.fake_nvml import fake_of, installed, uuid_of
from tests.unit.plugin.machine_values import simulated_machine
from tests.unit.plugin.test_wiring import KUBECONFIG
from topology.cli.program import version
from topology.model import parse_measurement
from topology.recordings import load_recording

pytestmark = pytest.mark.usefixtures("memory_kept")

DEADLINE_S = 120.0
SIMULATED = ("--simulate", "dgx-1-v100")
HEADER = "# size count type redop root time algbw busbw #wrong"
BENCHMARK = f"""
import os, sys
gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
print("NCCL version 2.27.3+cuda12.9", file=sys.stderr)
print("{HEADER}")
print(sys.argv[2], "1 float sum -1 1.0 1.0", 10.0 * len(gpus), 0)
"""


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """None of our settings in the environment, and a terminal of a known width."""
    for variable in ("NODE_NAME", "CONFIG_FILE", "KUBECONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def called(*arguments):
    """Run the command line in this process."""
    return programs.called(program.main, *arguments)


def uuids_of(node_name, recording="dgx-1-v100"):
    """How a simulated node's GPUs are called."""
    with contextlib.closing(simulated_machine(recording, node_name=node_name)) as machine:
        return [gpu.uuid for gpu in machine.read().gpus]


# --- discover --------------------------------------------------------------------------------


def test_discover_prints_tables():
    """For people."""
    done = called("discover", *SIMULATED)
    assert (done.exit_code, done.stderr) == (0, "")
    with contextlib.closing(simulated_machine("dgx-1-v100", node_name="here")) as machine:
        assert done.stdout == f"{reading_text(machine.read(), 'MIG instances')}\n"


def test_discover_prints_json():
    """For programs: nothing else on standard output."""
    done = called("discover", "--json", *SIMULATED)
    assert done.exit_code == 0
    assert [gpu["uuid"] for gpu in json.loads(done.stdout)["gpus"]] == uuids_of("here")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_discover_ends_without_an_error_where_its_output_is_closed(form, monkeypatch):
    """As for `coterie-plugin discover | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        program.main(["discover", *form, *SIMULATED])


def test_discover_shows_what_this_node_serves(monkeypatch):
    """Where the pod names its node, a simulated machine bears that node's ids."""
    monkeypatch.setenv("NODE_NAME", "n7")
    done = called("discover", "--json", *SIMULATED)
    assert [gpu["uuid"] for gpu in json.loads(done.stdout)["gpus"]] == uuids_of("n7")


def test_discover_reads_the_real_machine():
    """Through NVML, with nothing simulated."""
    with installed(fake_of(load_recording("dgx-a100"))):
        done = called("discover", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [gpu["uuid"] for gpu in found["gpus"]] == [uuid_of(i) for i in range(8)]
    assert found["driver_version"] == "580.65.06"


def test_discover_says_why_there_is_no_machine():
    """One sentence, exit code 1, nothing on standard output."""
    with installed(None):
        done = called("discover")
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(("--simulate", "no-such"), 2, "setting simulate: rec", id="recording"),
        pytest.param(("--health-poll-s", "0"), 2, "setting health_poll_s", id="value"),
        pytest.param(("--simulate-faults", "/x"), 2, "setting simulate_faults", id="together"),
        pytest.param(("--no-such-flag",), 2, "unrecognized arguments: --no-such-flag", id="flag"),
    ],
)
def test_what_is_wrong_is_said(arguments, code, message):
    """2: settings or arguments; 1: the machine."""
    done = called("discover", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# --- measure ---------------------------------------------------------------------------------


@pytest.fixture
def measuring(tmp_path):
    """Run `measure` with a script in the place of the benchmark."""

    def run(*options, body=BENCHMARK, simulate=("--simulate", "4x-a100-sxm"), out=None):
        script = tmp_path / "bench.py"
        script.write_text(body)
        command = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {{n}} {{bytes}}"
        path = out or tmp_path / "figures.json"
        done = called(
            *("measure", "--out", str(path), "--command", command), *(*simulate, *options)
        )
        return done, path

    return run


def test_measure_writes_every_pair(measuring):
    """The file is what the setting `measurements` reads; progress is no part of the output."""
    done, path = measuring("--message-bytes", "4096")
    assert (done.exit_code, done.stdout) == (0, f"6 pairs measured, written to {path}\n")
    assert "2,3: 20.0 GB/s" in done.stderr
    found = parse_measurement(path.read_text())
    assert [(p.first, p.second) for p in found.pairs] == list(combinations(range(4), 2))
    assert {p.bandwidth_gbytes_per_s for p in found.pairs} == {20.0}
    assert (found.message_bytes, found.nccl_version) == (4096, "2.27.3+cuda12.9")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", found.date or "")


def test_measure_takes_all_gpus_together_where_requested(measuring):
    """One run more."""
    done, path = measuring("--whole")
    assert done.exit_code == 0
    found = parse_measurement(path.read_text())
    assert [(one.gpus, one.bandwidth_gbytes_per_s) for one in found.sets] == [((0, 1, 2, 3), 40.0)]


def test_measure_ends_with_the_benchmarks_own_words(measuring):
    """And writes nothing: half a measurement would rank what was measured against what was not."""
    done, path = measuring(body="import sys; sys.exit('no NCCL here')")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no NCCL here" in done.stderr
    assert not path.exists()


def test_measure_needs_two_gpus(measuring):
    """There is no pair."""
    nvml = fake_of(load_recording("8x-l4"))
    del nvml.gpus[1:]
    with installed(nvml):
        done, path = measuring(simulate=())
    assert done.exit_code == 1
    assert "this machine has 1 GPU, expected two at least" in done.stderr
    assert not path.exists()


def test_figures_that_cannot_be_written_are_printed(measuring, tmp_path):
    """They may have taken hours."""
    done, _ = measuring(out=tmp_path / "no-such-folder" / "figures")
    assert done.exit_code == 2
    assert "No such file or directory" in done.stderr
    assert len(parse_measurement(done.stdout).pairs) == 6


# --- run -------------------------------------------------------------------------------------


def node_flags(root, **more):
    """Flags of a node without kubelet and API server."""
    kubeconfig = root / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    flags = {
        "node_name": "n1",
        "simulate": "dgx-1-v100",
        "kubeconfig": kubeconfig,
        "kubelet_port": 9,
        "kubelet_socket": root / "kubelet.sock",
        "pod_resources_socket": root / "pod-resources.sock",
        "metrics_address": "127.0.0.1",
        "metrics_port": 0,
        **more,
    }
    return [
        f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None
    ]


class Process:
    """The program as its own process; `until` reads its log."""

    def __init__(self, arguments, environment=None):
        self.lines = []
        command = [sys.executable, "-m", "plugin", "run", *arguments]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("COTERIE_")}
        environment = {**kept, **(environment or {})}
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._watchdog = threading.Timer(DEADLINE_S, self.process.kill)
        self._watchdog.start()

    def until(self, event, **fields):
        """The next line of this event with these fields."""
        assert self.process.stderr is not None
        for text in self.process.stderr:
            line = json.loads(text)
            self.lines.append(line)
            if line["event"] == event and fields.items() <= line.items():
                return line
        pytest.fail(f"no {event}, but {self.lines}")

    def get(self, port, path):
        """Status and text."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode().strip()
        connection.close()
        return found

    def end(self):
        """Exit code and the last of standard error, once it ends."""
        rest = self.process.communicate(timeout=DEADLINE_S)[1]
        return self.process.returncode, rest

    def close(self):
        """Leave nothing behind."""
        self._watchdog.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def sockets(folder):
    """The sockets that lie there."""
    return [path.name for path in folder.iterdir() if path.is_socket()]


@contextlib.contextmanager
def running(*arguments, environment=None):
    """A process that is gone afterwards."""
    process = Process(arguments, environment)
    try:
        yield process
    finally:
        process.close()


def test_the_program_serves_reloads_and_ends(root):
    """SIGHUP reads the settings again, SIGTERM ends it with 0 and leaves no socket."""
    config = root / "config.yaml"
    config.write_text("version: v1\ncoterie: {log_level: info, simulate: dgx-1-v100}\n")
    flags = node_flags(root, simulate=None, config_file=config, register_blind="true")
    with socket.socket(socket.AF_UNIX) as kubelet, running(*flags) as process:
        kubelet.bind(str(root / "kubelet.sock"))
        kubelet.listen()  # and answers nothing
        kubelet.settimeout(DEADLINE_S)
        port = process.until("listening")["port"]
        with kubelet.accept()[0]:
            assert len(sockets(root)) == 2
            assert process.get(port, "/livez") == (200, "ok")
            assert process.get(port, "/readyz")[0] == 503
        config.write_text("version: v1\ncoterie: {log_level: info, simulate: 8x-l4}\n")
        process.process.send_signal(signal.SIGHUP)
        process.until("effective_settings", simulate="8x-l4")
        process.until("machine_read")
        process.process.send_signal(signal.SIGTERM)
        code, rest = process.end()
        assert code == 0
        assert json.loads(rest.splitlines()[-1])["event"] == "stopped"
        assert sockets(root) == ["kubelet.sock"]


@pytest.fixture
def _own_log():
    """The log is set up once for a process; tests have many."""
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("_own_log")
@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        pytest.param({"node_name": None}, 2, "setting node_name is missing", id="no name"),
        pytest.param({"health_poll_s": 0}, 2, "setting health_poll_s", id="value"),
        pytest.param({"kubeconfig": "/no-such"}, 2, "setting kubeconfig", id="kubeconfig"),
        pytest.param({"measurements": "/no-such"}, 2, "setting measurements", id="figures"),
        pytest.param({"simulate": "no-such"}, 2, "setting simulate: rec", id="recording"),
        pytest.param({"simulate": None}, 1, "libnvidia-ml.so.1 not found: install", id="no driver"),
    ],
)
def test_a_start_that_fails_says_why(root, more, code, message):
    """2: the settings have to change; 1: the machine, which may be repaired."""
    with installed(None):
        done = called("run", *node_flags(root, driver_root_ctr_path="/", **more))
    assert done.exit_code == code
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert (lines[-1]["event"], lines[-1]["level"]) == ("fatal", "critical")
    assert message in lines[-1]["reason"]


def test_help_names_the_commands():
    """What a reader tries first."""
    done = called("--help")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in ("run", "discover", "measure", "record", "clean"))


def test_the_version():
    """What a bug report names."""
    done = called("--version")
    assert (done.exit_code, done.stdout) == (0, f"coterie-plugin {version()}\n")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--message-bytes=0", "--message-bytes: '0', expected int of at least 1"),
        ("--timeout-s=0", "--timeout-s: '0', expected float of at least 0.1"),
        ("--timeout-s=x", "--timeout-s: 'x', expected float of at least 0.1"),
    ],
)
def test_a_benchmark_needs_bytes_and_time(measuring, option, message):
    """Before any GPU is busy."""
    done, _ = measuring(option)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
