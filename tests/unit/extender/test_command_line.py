"""The command line: exit codes, messages, and a server in this very process."""

from __future__ import annotations

import gc
import http.client
import http.server
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, ClassVar

import pytest
import structlog

from extender import command_line as program
from extender import wiring
from extender.config import ExtenderSettings
from extender.decision_log import DecisionLog
from extender.engine import make_engine
from extender.engine.events import VerbCalled
from extender.protocol import Verb
from extender.wiring import Sockets
from tests.programs import Done, called
from tests.unit.extender.pods import args, binding, pod
from topology.cli.program import version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from extender.http.server import Listener
    from kube.log import Logger

CLUSTER = "1x dgx-1-v100, 1x 8x-l4"


@pytest.fixture
def _process_restored():
    """Serving tunes the garbage collector and the log of the whole process."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    structlog.reset_defaults()


def run(*words: str) -> Done:
    """Run the command line."""
    return called(program.main, *words)


async def serve_briefly(
    doors: list[Listener],
    *,
    keep_alive_s: int,
    log: Logger,
    background: Callable[[], Awaitable[None]],
    on_end: Callable[[], None],
) -> None:
    """Stand in for the servers."""
    del doors, keep_alive_s, log, background, on_end


class Caller(threading.Thread):
    """Speaks to the server as the scheduler does, over one connection, then ends it."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.answers: list[tuple[int, bytes]] = []

    def run(self) -> None:
        """Create the pod, filter, bind, then SIGTERM."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

            def call(method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
                connection.request(method, path, body)
                response = connection.getresponse()
                return response.status, response.read()

            while call("GET", "/readyz")[0] != http.HTTPStatus.OK:
                pass
            created = json.dumps(pod(4)).encode()
            self.answers = [
                call("POST", "/api/v1/namespaces/default/pods", created),
                call("POST", "/filter", args(pod(4), ["dgx-1-v100-0", "8x-l4-0"])),
                call("POST", "/bind", binding("u1", "dgx-1-v100-0")),
            ]
            connection.close()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("_process_restored")
def test_serve_answers_until_sigterm_and_what_it_logged_replays(tmp_path, monkeypatch):
    """The whole life of the program: effective settings, ready, answers, a clean end."""
    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(wiring, "open_sockets", lambda _settings: Sockets(listener, None))
    caller = Caller(listener.getsockname()[1])
    decisions = tmp_path / "decisions.jsonl"
    caller.start()
    before = signal.getsignal(signal.SIGTERM)
    result = run("serve", "--cluster", CLUSTER, "--decision-log", str(decisions))
    caller.join()
    assert result.exit_code == 0, result.output
    assert [status for status, _ in caller.answers] == [200, 200, 200]
    assert json.loads(caller.answers[2][1]) == {"Error": ""}
    events = [json.loads(line)["event"] for line in result.stderr.splitlines()]
    assert events[:2] == ["effective_settings", "listening"]
    assert events[-4:] == ["ready", "answered", "answered", "stopped"]
    assert signal.getsignal(signal.SIGTERM) is before
    replayed = run("replay", str(decisions))
    assert replayed.exit_code == 0
    assert replayed.output.endswith(" calls, all answered as recorded\n")


def test_replay_shows_the_first_difference(tmp_path):
    """Exit code 1, so that a pipeline can stop on it."""
    engine = make_engine(ExtenderSettings(cluster=CLUSTER).rules)
    path = tmp_path / "d.jsonl"
    with path.open("w") as file:
        log = DecisionLog(file, engine.rules, on_end=print)
        log.record(VerbCalled(Verb.FILTER, b"[]", 0.0), engine.answer(Verb.FILTER, b"{}", 0.0))
    result = run("replay", str(path))
    assert result.exit_code == 1
    assert result.output.startswith("line 2: body differs after 1 calls\nrecorded: {")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"hello\n", "decision log line 1 is 'hello\\n'", id="other text"),
        pytest.param(b"", "decision log is empty", id="nothing"),
        pytest.param(b"\xff\n", "can't decode byte 0xff", id="no text"),
        pytest.param(None, "d.jsonl: no such file or directory\n", id="no file"),
    ],
)
def test_replay_of_something_else_is_an_error(tmp_path, content, message):
    """Exit code 2, since nothing was compared; the message names the file."""
    path = tmp_path / "d.jsonl"
    if content is not None:
        path.write_bytes(content)
    result = run("replay", str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {path}: ")
    assert message in result.stderr


@pytest.mark.parametrize("cut", ["", "\n", '{"kind":"call","ver'], ids=["none", "whole", "half"])
@pytest.mark.usefixtures("_process_restored")
def test_a_restart_after_a_crash_begins_on_a_line_of_its_own(tmp_path, monkeypatch, cut):
    """What was half written must not swallow the next header."""
    monkeypatch.setattr(wiring, "run_until_signal", serve_briefly)
    path = tmp_path / "d.jsonl"
    words = ("serve", "--cluster", CLUSTER, "--listen-port", "0", "--decision-log", str(path))
    assert run(*words).exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "it names all users' pods"
    path.write_text(path.read_text().rstrip("\n") + ("\n" + cut if "{" in cut else cut))
    assert run(*words).exit_code == 0
    result = run("replay", str(path))
    note = "line 2 is cut off, as by a crash: its run ends there\n" if "{" in cut else ""
    assert (result.exit_code, result.output) == (0, f"{note}0 calls, all answered as recorded\n")
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
        ("[" * 600, "nested too deeply"),
        ("a: 1\na: 2", "key 'a' is given twice"),
        ("kind: Job", "spec.template of the Job is missing, expected a pod template"),
        ("metadata: {name: p}\nspec: {nodeName: n1}", "spec.nodeName is 'n1': no scheduler"),
    ],
)
def test_explain_of_something_else_is_an_error(tmp_path, text, message):
    """Exit code 2 and a message."""
    path = tmp_path / "pod.yaml"
    path.write_text(text)
    result = run("explain", str(path), "--cluster", CLUSTER)
    assert result.exit_code == 2
    assert message in result.stderr
    assert f"pod file {path}" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_explain_of_a_pod_without_gpus_does_not_say_that_it_fits(tmp_path):
    """Such as one that misspells the resource."""
    path = tmp_path / "pod.yaml"
    path.write_text(json.dumps(pod(2)).replace("nvidia.com/gpu", "nvidia.com/gpus"))
    result = run("explain", str(path), "--cluster", CLUSTER)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.strip() == (
        f"error: pod file {path} requests 'nvidia.com/gpus', expected nvidia.com/gpu; "
        "nearest: nvidia.com/gpu"
    )
    path.write_text(json.dumps(pod(0)))
    result = run("explain", str(path), "--cluster", CLUSTER)
    assert result.stderr.strip() == (
        f"error: pod file {path}: no container requests nvidia.com/gpu: "
        "Coterie does not place this pod"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "ml/train-0",
            (
                "pod file ml/train-0 cannot be read: no such file or directory; for a pod of the "
                "cluster, NAMESPACE/NAME, give --url"
            ),
        ),
        ("pod.yaml", "pod file pod.yaml cannot be read: no such file or directory"),
    ],
)
def test_explain_of_no_file_says_how_a_pod_is_named(tmp_path, monkeypatch, name, message):
    """A pod of the cluster needs the address of a running extender."""
    monkeypatch.chdir(tmp_path)
    result = run("explain", name, "--cluster", CLUSTER)
    assert (result.exit_code, message) == (2, result.stderr.strip().removeprefix("error: "))


def test_explain_ends_without_an_error_where_its_output_is_closed(tmp_path):
    """As for `coterie-extender explain pod.yaml | head -1`."""
    path = tmp_path / "pod.yaml"
    path.write_text(json.dumps(pod(2)))
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "extender", "explain", str(path), "--cluster", CLUSTER]
    with os.fdopen(writer, "wb") as output:
        ended = subprocess.run(words, stdout=output, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_explain_names_a_file_that_is_no_text(tmp_path):
    """Which of the files it was."""
    path = tmp_path / "pod.yaml"
    path.write_bytes(b"\xff\xfe")
    result = run("explain", str(path), "--cluster", CLUSTER)
    assert (result.exit_code, str(path) in result.stderr) == (2, True)


class Answerer(http.server.BaseHTTPRequestHandler):
    """A running extender that knows two pods."""

    answers: ClassVar[dict[str, object]] = {
        "/api/v1/explain/ns/fits": {"request": {}, "nodes": [{"node": "n1", "fits": True}]},
        "/api/v1/explain/ns/waits": {"request": {}, "nodes": [{"node": "n1", "fits": False}]},
        "/api/v1/explain/ns/nowhere": {"request": {}, "nodes": []},
        "/api/v1/explain/ns/runs": {"request": {}, "bound": {"node": "n1"}},
        "/api/v1/explain/ns/other": {"request": None, "nodes": []},
        "/api/v1/explain/ns/odd": None,
    }

    def do_GET(self) -> None:
        """Answer as the extender does."""
        answer = self.answers.get(self.path, {"error": "pod is not there"})
        body = b"{" if answer is None else json.dumps(answer).encode()
        self.send_response(200 if self.path in self.answers else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Say nothing."""


@pytest.fixture
def running():
    """The URL of a running extender."""
    with http.server.HTTPServer(("127.0.0.1", 0), Answerer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("pod", "code"),
    [
        pytest.param("ns/fits", 0, id="fits somewhere"),
        pytest.param("ns/waits", 1, id="fits nowhere"),
        pytest.param("ns/nowhere", 1, id="no node at all"),
        pytest.param("ns/runs", 0, id="has its node"),
    ],
)
def test_explain_calls_a_running_extender(running, pod, code):
    """About a pod of its cluster, by namespace and name."""
    result = run("explain", pod, "--url", running)
    assert result.exit_code == code, result.output
    assert json.loads(result.stdout) == Answerer.answers[f"/api/v1/explain/{pod}"]


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ("ns/gone", "pod is not there"),
        ("ns/odd", "Expecting property name"),
        ("ns/other", "ns/other: no container requests a resource of the extender's setting"),
        ("pod.yaml", "POD is 'pod.yaml', expected NAMESPACE/NAME with --url"),
    ],
)
def test_explain_of_what_the_extender_does_not_know_is_an_error(running, pod, message):
    """Exit code 2 and a message."""
    result = run("explain", pod, "--url", running)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///etc", "file:///etc is not an address"),
        ("127.0.0.1:8888", "is not an address"),
        ("http://127.0.0.1:1", "refused"),
        ("http://127.0.0.1:many", "Port could not be cast"),
        ("https://127.0.0.1:1", "expected http://host:port"),
    ],
)
def test_explain_of_a_place_that_is_no_extender_is_an_error(url, message):
    """A file is never read, and no extender is called."""
    result = run("explain", "ns/fits", "--url", url)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cluster", "1x pdp-11"), "machine is 'pdp-11'"),
        ((), "settings cluster, kubeconfig are missing and this is no pod of a cluster"),
        (
            ("--kubeconfig", "/no/such/file"),
            "setting kubeconfig /no/such/file: there is no such file",
        ),
        (
            ("--cluster", CLUSTER, "--candidate-limit", "-1"),
            "setting candidate_limit (flag, --candidate-limit) is '-1'",
        ),
        (("--cluster", CLUSTER, "--listen-address", "256.0.0.1"), "cannot listen there"),
        (
            ("--cluster", CLUSTER, "--listen-port", "0", "--decision-log", "/"),
            "setting decision_log /: cannot be written: is a directory",
        ),
    ],
)
@pytest.mark.usefixtures("_process_restored")
def test_serve_does_not_start_on_a_guess(words, message):
    """Exit code 2; the last line of the log names setting, value and expectation."""
    result = run("serve", "--listen-port", "0", *words)
    assert result.exit_code == 2
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert (lines[-1]["event"], lines[-1]["level"]) == ("fatal", "critical")
    assert message in lines[-1]["reason"]


@pytest.mark.parametrize(("words", "seconds"), [((), 120), (("--keep-alive-s", "7"), 7)])
@pytest.mark.usefixtures("_process_restored")
def test_idle_connections_outlive_the_schedulers(monkeypatch, words, seconds):
    """kube-scheduler drops them after 90 s and does not retry on one that we dropped first."""
    served: list[int] = []

    async def keep(doors: list[Listener], *, keep_alive_s: int, **_others: object) -> None:
        served.append(keep_alive_s)
        assert len(doors) == 1

    monkeypatch.setattr(wiring, "run_until_signal", keep)
    result = run("serve", "--cluster", CLUSTER, "--listen-port", "0", *words)
    assert (result.exit_code, served) == (0, [seconds])


def test_every_setting_has_a_flag():
    """A setting that only a file could set would be forgotten."""
    shown = run("serve", "--help").stdout
    flags = {f"--{name.replace('_', '-')}" for name in ExtenderSettings.model_fields}
    assert flags - set(shown.split()) == set()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param((), "the following arguments are required: COMMAND", id="no command"),
        pytest.param(("serve", "--colour=red"), "arguments: --colour=red", id="unknown flag"),
        pytest.param(("serve", "--listen-p=1"), "arguments: --listen-p=1", id="abbreviated"),
    ],
)
def test_a_command_line_that_is_wrong_ends_with_one_sentence(words, message):
    """Exit code 2, and no page of usage."""
    done = run(*words)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr


def test_the_version():
    """What a bug report names."""
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"coterie-extender {version()}\n")
