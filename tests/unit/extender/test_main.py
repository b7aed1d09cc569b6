"""The command line: exit codes, messages, and a server in this very process."""

from __future__ import annotations

import gc
import http.client
import json
import os
import signal
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest
import structlog
import uvicorn
from typer.testing import CliRunner

from extender import __main__ as program
from extender.decisions import DecisionLog, make_engine
from extender.engine import Verb
from extender.settings import ENV_PREFIX, Settings
from tests.unit.extender.pods import args, binding, pod

CLUSTER = "1x dgx-1-v100, 1x 8x-l4"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    """No setting of the machine that runs the tests may count."""
    for name in list(os.environ):
        if name.upper().startswith(ENV_PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture
def _process_restored():
    """Serving tunes the garbage collector and the log of the whole process."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    structlog.reset_defaults()


def run(*words: str) -> Any:
    """Run the command line."""
    return CliRunner().invoke(program.cli, list(words))


class Caller(threading.Thread):
    """Speaks to the server as the scheduler does, over one connection, then ends it."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.answers: list[tuple[int, bytes]] = []

    def run(self) -> None:
        """Filter, bind, then SIGTERM."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            for verb, body in (
                ("filter", args(pod(4), ["dgx-1-v100-0", "8x-l4-0"])),
                ("bind", binding("u1", "dgx-1-v100-0")),
            ):
                connection.request("POST", f"/{verb}", body)
                response = connection.getresponse()
                self.answers.append((response.status, response.read()))
            connection.close()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("_process_restored")
def test_serve_answers_until_sigterm_and_what_it_logged_replays(tmp_path, monkeypatch):
    """The whole life of the program: effective settings, ready, answers, a clean end."""
    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(program, "_listen", lambda _address, _port: listener)
    caller = Caller(listener.getsockname()[1])
    decisions = tmp_path / "decisions.jsonl"
    caller.start()
    before = signal.getsignal(signal.SIGTERM)
    result = run("serve", "--cluster", CLUSTER, "--decision-log", str(decisions))
    caller.join()
    assert result.exit_code == 0, result.output
    assert [status for status, _ in caller.answers] == [200, 200]
    assert json.loads(caller.answers[1][1]) == {"Error": ""}
    events = [json.loads(line)["event"] for line in result.stderr.splitlines()]
    assert events == ["effective_settings", "ready", "answered", "answered", "stopped"]
    assert signal.getsignal(signal.SIGTERM) is before
    replayed = run("replay", str(decisions))
    assert (replayed.exit_code, replayed.output) == (0, "2 calls, all answered as recorded\n")


def test_replay_shows_the_first_difference(tmp_path):
    """Exit code 1, so that a pipeline can stop on it."""
    settings = Settings(cluster=CLUSTER)
    spec = settings.cluster_spec()
    engine = make_engine(spec, settings.rules)
    path = tmp_path / "d.jsonl"
    with path.open("w") as file:
        log = DecisionLog(file, spec, engine)
        answer = engine.answer(Verb.BIND, b"{}", 0.0)
        log.record(Verb.BIND, b"[]", 0.0, answer)
    result = run("replay", str(path))
    assert result.exit_code == 1
    assert result.output.startswith("line 2: answer differs after 1 calls\nrecorded: {")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"hello\n", "decision log line 1 is 'hello\\n'", id="other text"),
        pytest.param(b"", "decision log is empty", id="nothing"),
        pytest.param(b"\xff\n", "can't decode byte 0xff", id="no text"),
    ],
)
def test_replay_of_something_else_is_an_error(tmp_path, content, message):
    """Exit code 2, since nothing was compared; the message names the file."""
    path = tmp_path / "d.jsonl"
    path.write_bytes(content)
    result = run("replay", str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{path}: ")
    assert message in result.stderr


@pytest.mark.parametrize("cut", ["", "\n", '{"kind":"call","ver'], ids=["none", "whole", "half"])
@pytest.mark.usefixtures("_process_restored")
def test_a_restart_after_a_crash_begins_on_a_line_of_its_own(tmp_path, monkeypatch, cut):
    """What was half written must not swallow the next header."""
    monkeypatch.setattr(uvicorn.Server, "run", lambda _server, **_: None)
    path = tmp_path / "d.jsonl"
    words = ("serve", "--cluster", CLUSTER, "--listen-port", "0", "--decision-log", str(path))
    assert run(*words).exit_code == 0
    path.write_text(path.read_text().rstrip("\n") + ("\n" + cut if "{" in cut else cut))
    assert run(*words).exit_code == 0
    result = run("replay", str(path))
    told = "line 2 is cut off, as by a crash: its run ends there\n" if "{" in cut else ""
    assert (result.exit_code, result.output) == (0, f"{told}0 calls, all answered as recorded\n")
    assert path.read_text().count('"kind":"run"') == 2


@pytest.mark.parametrize(
    ("n_gpus", "code"), [pytest.param(2, 0, id="fits"), pytest.param(9, 1, id="fits nowhere")]
)
def test_explain_prints_every_node(tmp_path, n_gpus, code):
    """From a manifest, without a server."""
    path = tmp_path / "pod.yaml"
    path.write_text(json.dumps(pod(n_gpus)))
    result = run("explain", str(path), "--cluster", CLUSTER)
    assert result.exit_code == code
    assert len(json.loads(result.stdout)["nodes"]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "expected"),
        ("{}", "request metadata is missing"),
        ("[]", "request body is"),
        ("2026-11-21: x", "keys must be str"),
        ("&a [*a]", "Circular reference detected"),
        ("[" * 3000, "nested too deeply"),
        ("a: 1\na: 2", "key 'a' is given twice"),
    ],
)
def test_explain_of_something_else_is_an_error(tmp_path, text, message):
    """Exit code 2 and a message."""
    path = tmp_path / "pod.yaml"
    path.write_text(text)
    result = run("explain", str(path), "--cluster", CLUSTER)
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_explain_names_a_file_that_is_no_text(tmp_path):
    """Which of the files it was."""
    path = tmp_path / "pod.yaml"
    path.write_bytes(b"\xff\xfe")
    result = run("explain", str(path), "--cluster", CLUSTER)
    assert (result.exit_code, str(path) in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cluster", "1x pdp-11"), "machine is 'pdp-11'"),
        ((), "setting cluster is missing"),
        (("--cluster", CLUSTER, "--candidate-limit", "-1"), "setting candidate_limit is -1"),
        (("--cluster", CLUSTER, "--listen-address", "256.0.0.1"), "cannot listen there"),
        (("--cluster", CLUSTER, "--listen-port", "0", "--decision-log", "/"), "cannot be written"),
    ],
)
@pytest.mark.usefixtures("_process_restored")
def test_serve_does_not_start_on_a_guess(words, message):
    """Exit code 2 and a message that names setting, value and expectation."""
    result = run("serve", *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(("words", "seconds"), [((), 120), (("--keep-alive-s", "7"), 7)])
@pytest.mark.usefixtures("_process_restored")
def test_idle_connections_outlive_the_schedulers(monkeypatch, words, seconds):
    """kube-scheduler drops them after 90 s and does not retry on one that we dropped first."""
    served: list[int] = []

    def keep(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        served.append(server.config.timeout_keep_alive)
        assert len(sockets) == 1

    monkeypatch.setattr(uvicorn.Server, "run", keep)
    result = run("serve", "--cluster", CLUSTER, "--listen-port", "0", *words)
    assert (result.exit_code, served) == (0, [seconds])


def test_every_setting_has_a_flag():
    """A setting that only a file could set would be forgotten."""
    (serve,) = [c for c in program.cli.registered_commands if c.callback is program.serve]
    assert serve.callback is not None
    flags = set(serve.callback.__annotations__) - {"config", "return"}
    assert flags == set(Settings.model_fields)


def test_main_runs_the_command_line(monkeypatch):
    """What the console script calls."""
    monkeypatch.setattr("sys.argv", ["coterie-extender", "--help"])
    with suppress(SystemExit):
        program.main()
