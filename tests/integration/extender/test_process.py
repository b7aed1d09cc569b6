"""The extender as its own process, spoken to over one keep-alive connection."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.extender.embedded_client import PODS
from tests.unit.extender.pods import args, binding, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT_S = 60


@dataclass
class Extender:
    """The process and a connection to it."""

    process: subprocess.Popen[str]
    connection: http.client.HTTPConnection
    read_port: int

    def call(self, method: str, path: str, body: bytes | None = None):
        """One request on the same connection."""
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        content = response.read()
        assert response.getheader("Content-Length") == str(len(content))
        assert response.getheader("Transfer-Encoding") is None
        return response.status, content

    def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create a pod; returns it as the server has it."""
        status, body = self.call("POST", PODS, json.dumps(pod).encode())
        assert status == 200
        created: dict[str, Any] = json.loads(body)
        return created


@pytest.fixture
def extender(tmp_path) -> Iterator[Extender]:
    """A server on a free port, which is in its log."""
    command = [
        *(sys.executable, "-m", "extender", "serve", "--listen-port", "0"),
        *("--read-port", "0"),
        *("--cluster", "2x dgx-1-v100, 1x 8x-l4", "--decision-log", str(tmp_path / "d.jsonl")),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = map(json.loads, process.stderr)
        line = next(one for one in lines if one["event"] == "listening")
        next(one for one in lines if one["event"] == "ready")
        connection = http.client.HTTPConnection("127.0.0.1", line["port"], timeout=60)
        yield Extender(process, connection, line["read_port"])
        connection.close()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


def test_a_pod_lives_and_the_process_ends_cleanly(extender, tmp_path):
    """Filter, prioritize, bind, garbage, the pod's end, all on one connection; then SIGTERM."""
    nodes = ["dgx-1-v100-0", "dgx-1-v100-1", "8x-l4-0"]
    content = extender.create(pod(4, affinity="nvlink"))
    status, body = extender.call("POST", "/filter", args(content, nodes))
    assert (status, json.loads(body)["NodeNames"]) == (200, nodes)
    connected = extender.connection.sock
    status, body = extender.call("POST", "/prioritize", args(content, nodes))
    scores = {entry["Host"]: entry["Score"] for entry in json.loads(body)}
    assert scores["dgx-1-v100-0"] > scores["8x-l4-0"]
    assert extender.call("POST", "/filter", b"{" * 1_000_000)[0] == 200
    assert extender.call("POST", "/bind", binding("u1", "dgx-1-v100-0")) == (200, b'{"Error":""}')
    assert extender.call("GET", "/readyz") == (200, b"ok")
    assert extender.call("DELETE", f"{PODS}/pod-u1")[0] == 200
    assert extender.connection.sock is connected
    extender.process.send_signal(signal.SIGTERM)
    assert extender.process.wait(timeout=START_TIMEOUT_S) == 0
    replay = subprocess.run(
        [sys.executable, "-m", "extender", "replay", str(tmp_path / "d.jsonl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert replay.returncode == 0
    assert replay.stdout.endswith(" calls, all answered as recorded\n")


def test_the_read_port_is_of_the_loopback_alone_and_places_no_pod(extender):
    """What the log names as `read_port` answers reads, and no verb of the scheduler's."""
    with httpx.Client(base_url=f"http://127.0.0.1:{extender.read_port}", timeout=60) as client:
        page = client.get("/api/v1/nodes", params={"limit": 2})
        assert [node["name"] for node in page.json()["items"]] == ["8x-l4-0", "dgx-1-v100-0"]
        tag = {"If-None-Match": page.headers["etag"]}
        assert client.get("/api/v1/nodes", headers=tag).status_code == 304
        refused = client.post("/filter", content=args(pod(1), ["8x-l4-0"]))
        assert refused.status_code == 404
        rebound = client.get("/api/v1/nodes", headers={"Host": "attacker.example"})
        assert (rebound.status_code, "read_hosts" in rebound.text) == (421, True)
    elsewhere = f"http://127.0.0.2:{extender.read_port}"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{elsewhere}/api/v1/nodes", timeout=60)
    assert extender.call("GET", "/readyz") == (200, b"ok")


def test_a_stream_shows_a_pod_that_is_placed_and_ends_with_the_process(extender):
    """Neither does an open stream keep SIGTERM waiting."""
    base = f"http://127.0.0.1:{extender.read_port}"
    with httpx.stream("GET", f"{base}/api/v1/changes", timeout=60) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        assert json.loads(next(lines).removeprefix("data: "))["nodes"] == []
        extender.call("POST", "/filter", args(extender.create(pod(1)), ["8x-l4-0"]))
        assert extender.call("POST", "/bind", binding("u1", "8x-l4-0"))[0] == 200
        changed = (json.loads(line.removeprefix("data: "))["nodes"] for line in lines)
        assert next(nodes for nodes in changed if nodes) == ["8x-l4-0"]  # one may be of the queue
        extender.process.send_signal(signal.SIGTERM)
        assert list(lines) == []
        assert extender.process.wait(timeout=START_TIMEOUT_S) == 0
    assert "graceful shutdown exceeded" not in extender.process.stderr.read()  # uvicorn's own words
