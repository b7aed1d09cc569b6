"""A kube-scheduler's side of the extender protocol over one keep-alive connection.

Sends requests in the form in which kube-scheduler sends them, and measures how long each answer
took from the first byte sent to the last one read. It keeps nothing and retries nothing.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.errors import ServerFailed
from benchmarks.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "PODS",
    "Connection",
    "Sender",
    "binding",
    "filter_args",
    "free_port",
    "names_list",
    "pod",
    "serve",
]

_GO = (",", ":")
"""JSON's separators as Go's encoding/json writes them: without white space."""
PODS = "/api/v1/namespaces/bench/pods"
"""Where the embedded cluster's API server keeps the pods of `pod`."""
DEADLINE_S = 120.0
"""Longest time that a server may take to be ready: thousands of nodes are laid out first."""


def pod(uid: str, size: int, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Write a pod with one GPU container as the API server shows it."""
    count = {"nvidia.com/gpu": str(size)}
    return {
        "metadata": {
            "name": f"pod-{uid}",
            "namespace": "bench",
            "uid": uid,
            "annotations": annotations or {},
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "train",
                    "resources": {"limits": count, "requests": count},
                }
            ],
            "schedulerName": "default-scheduler",
        },
        "status": {"phase": "Pending"},
    }


def filter_args(wanted: dict[str, Any], names_json: str) -> bytes:
    """Encode ExtenderArgs; `names_json` is `names_list` of the node names, made once."""
    pod_json = json.dumps(wanted, separators=_GO)
    return f'{{"Pod":{pod_json},"Nodes":null,"NodeNames":{names_json}}}'.encode()


def names_list(names: Sequence[str]) -> str:
    """Encode node names, as the last field of ExtenderArgs."""
    return json.dumps(names, separators=_GO)


def binding(uid: str, node: str) -> bytes:
    """Encode ExtenderBindingArgs."""
    args = {"PodName": f"pod-{uid}", "PodNamespace": "bench", "PodUID": uid, "Node": node}
    return json.dumps(args).encode()


class Sender(Protocol):
    """A connection to which requests can be sent."""

    def send(self, path: str, body: bytes, *, method: str = "POST") -> tuple[bytes, float]:
        """Send a request; returns the body of the answer and the seconds it took."""
        ...


class Connection:
    """One keep-alive HTTP connection without Nagle's delay, as Go's client has it."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, path: str, body: bytes, *, method: str = "POST") -> tuple[bytes, float]:
        """Send a request; returns the body of the answer and the seconds it took.

        Raises `ServerFailed` for a status other than 200.
        """
        start = time.perf_counter()
        self._http.request(method, path, body, {"Content-Type": "application/json"})
        response = self._http.getresponse()
        answer = response.read()
        seconds = time.perf_counter() - start
        if response.status != http.client.OK:
            msg = f"{method} {path}: status {response.status}, expected 200: {answer[:200]!r}"
            raise ServerFailed(msg)
        return answer, seconds

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def serve(module: str, arguments: Sequence[str], port: int) -> Iterator[int]:
    """Run `python -m module` until the block ends; yields its process id once it is ready.

    Raises `ServerFailed` where it ends early or is not ready within `DEADLINE_S`.
    """
    command = [sys.executable, "-m", module, *arguments]
    null = subprocess.DEVNULL
    process = subprocess.Popen(tethered(command), stdout=null, stderr=null)  # noqa: S603 - our own modules
    try:
        _await_ready(process, module, port)
        yield process.pid
        process.terminate()
        process.wait(timeout=30)
    finally:
        process.kill()
        process.wait()


def _await_ready(process: subprocess.Popen[bytes], module: str, port: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            msg = f"{module} ended with status {process.returncode} before it was ready"
            raise ServerFailed(msg)
        try:
            with closing(Connection(port)) as connection:
                connection.send("/readyz", b"", method="GET")
        except (OSError, ServerFailed):
            time.sleep(0.05)
        else:
            return
    msg = f"{module} is not ready after {DEADLINE_S:g} s"
    raise ServerFailed(msg)
