"""The extender as a process of its own, from its start to its end.

Starts the process, yields an HTTP client for it once it is ready, and ends it by its own handle,
however the block ends. Where this program is killed the kernel ends it (`benchmarks.tether`). It
never ends anything else.

The extender takes a free port itself (port 0) and logs which one; `/readyz` reports when it is
ready. It runs in a session of its own, so that ctrl-C reaches this program first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx

from benchmarks.errors import ServerFailed
from benchmarks.tether import tethered
from extender import logkeys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["run_extender"]

START_DEADLINE_S = 60.0
ANSWER_TIMEOUT_S = 60.0
STOP_DEADLINE_S = 15.0
_POLL_S = 0.05
_TAIL = 600


@contextmanager
def run_extender(cluster: str, *, port: int, log: Path) -> Iterator[httpx.Client]:
    """Run the extender on 127.0.0.1 while the block lasts; yields a client for it.

    `port` 0 takes a free one. Standard output and error go to `log`. Raises `ServerFailed` where
    the extender ends early or is not ready within a minute; the message holds the end of its log.
    """
    command = [sys.executable, "-m", "extender", "serve", "--cluster", cluster]
    command += ["--listen-address", "127.0.0.1", "--listen-port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own module
            tethered(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_DEADLINE_S
        address = f"http://127.0.0.1:{_await_port(process, log, deadline)}"
        with httpx.Client(base_url=address, timeout=ANSWER_TIMEOUT_S, trust_env=False) as client:
            _await_ready(client, process, log, deadline)
            yield client
    finally:
        _stop(process)


def _await_port(process: subprocess.Popen[bytes], log: Path, deadline: float) -> int:
    while True:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            port = _logged_port(line)
            if port is not None:
                return port
        _wait(process, log, deadline)


def _logged_port(line: str) -> int | None:
    """Read the port from the line that says `listening`; None for any other line."""
    try:
        entry: object = json.loads(line)
    except json.JSONDecodeError:
        return None
    if isinstance(entry, dict) and entry.get("event") == logkeys.LISTENING:
        return int(entry["port"])
    return None


def _await_ready(
    client: httpx.Client, process: subprocess.Popen[bytes], log: Path, deadline: float
) -> None:
    while True:
        try:
            if client.get("/readyz").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass  # it logged that it listens, so an answer will come or the deadline will pass
        _wait(process, log, deadline)


def _wait(process: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    status = process.poll()
    if status is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        return
    tail = log.read_text(encoding="utf-8", errors="replace")[-_TAIL:].strip()
    what = f"is not ready after {START_DEADLINE_S:g} s" if status is None else "ended early"
    msg = f"extender {what} (status {status}); the end of {log}: {tail or 'nothing'}"
    raise ServerFailed(msg)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
