"""Programs of a test cluster: started, awaited, paused, killed, restarted, ended.

Waits until a program is ready, and if it does not become so, reports what its log says. It ends
what it started by its own handle and nothing else. A program never outlives this process: the
kernel kills it when this process ends, be it by SIGKILL (see `benchmarks.tether`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from benchmarks.tether import tethered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

__all__ = ["Place", "Program", "ProgramFailed", "free_port", "in_starter"]

_ROOT = Path(__file__).resolve().parents[3]
_STOP_DEADLINE_S = 10.0
_POLL_S = 0.05
_TAIL_BYTES = 4000
_PORTS = range(20_000, 32_768)
_given_ports: set[int] = set()
_INHERITED = ("PATH", "LANG", "LC_ALL", "TMPDIR")

# The kernel's death signal goes out when the *thread* that started a program ends. Tests start
# programs from short-lived threads (asyncio.to_thread), so one thread that lives as long as this
# process starts them all.
_STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


@dataclass(frozen=True, slots=True)
class Place:
    """Where programs run: which thread starts them, and how the command gets there."""

    starter: Executor
    command: Callable[[Sequence[str]], list[str]]


class ProgramFailed(Exception):
    """A program did not start, was not ready in time, or said no."""


@dataclass(kw_only=True)
class Program:
    """One program, which may be started again after it ended; its log goes on in the same file."""

    name: str
    command: Sequence[str]
    log: Path
    is_ready: Callable[[], bool]
    """Called repeatedly after a start; may not raise, may not block for long."""
    environment: Mapping[str, str] = field(default_factory=dict)
    start_within_s: float = 60.0
    place: Place | None = field(default=None, repr=False)
    """Elsewhere than where this process is."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def pid(self) -> int:
        """Process id of the last start."""
        if self._process is None:
            msg = f"{self.name} was never started"
            raise ProgramFailed(msg)
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self, *, is_awaited: bool = True) -> None:
        """Start it and wait until it is ready; raises `ProgramFailed` with the log's end."""
        if self.is_running:
            msg = f"{self.name} runs already, as process {self.pid}"
            raise ProgramFailed(msg)
        starter = self.place.starter if self.place else _STARTER
        self._process = starter.submit(self._spawn).result()
        if is_awaited:
            self.await_ready()

    def await_ready(self) -> None:
        """Wait until it is ready; where it is not in time, end it and raise `ProgramFailed`."""
        deadline = time.monotonic() + self.start_within_s
        try:
            while not self.is_ready():
                self._pause(deadline)
            self._check_running()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL; returns when it has ended. It may have ended before."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, within_s: float = _STOP_DEADLINE_S) -> None:
        """SIGTERM, and SIGKILL where that takes too long; returns when it has ended."""
        if self._process is None:
            return
        self._process.terminate()
        self.resume()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        self.kill()

    def pause(self) -> None:
        """Stop it where it stands, as a hung process (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause` (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(FileNotFoundError):
            return self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        return ""

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self.place.command(self.command) if self.place else tethered(self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=_ROOT,
                env=inherited | {"HOME": str(self.log.parent)} | dict(self.environment),
                process_group=0,  # ctrl-C comes to us, and we end what we started in its order
            )

    def _pause(self, deadline: float) -> None:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_POLL_S)
        self._check_running()
        if time.monotonic() > deadline:
            msg = f"{self.name} was not ready within {self.start_within_s:g} s\n{self._log_end()}"
            raise ProgramFailed(msg)

    def _check_running(self) -> None:
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            msg = f"{self.name} ended with code {code} before it was ready\n{self._log_end()}"
            raise ProgramFailed(msg)

    def _log_end(self) -> str:
        return f"command: {' '.join(self.command)}\nthe end of {self.log}:\n{self.log_tail()}"


def in_starter(call: Callable[[], None]) -> None:
    """Run it in the thread that starts programs: they inherit what it changes of that thread."""
    _STARTER.submit(call).result()


def free_port() -> int:
    """Find a TCP port of 127.0.0.1 on which no process listens; no other process gets it.

    Below Linux' default range of ephemeral ports: a client that connects again and again to a
    server that was killed could else be given that server's port as its own. It is this process'
    until it ends, by a lock on the port's byte of a file: a program takes seconds to listen, and
    meanwhile tests in other workers look for ports, too.
    """
    candidates = random.SystemRandom()
    while True:
        port = candidates.choice(_PORTS)
        if port in _given_ports:
            continue
        with contextlib.suppress(OSError):
            fcntl.lockf(_port_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            with socket.create_server(("127.0.0.1", port)):
                _given_ports.add(port)
                return port


@cache
def _port_locks() -> IO[bytes]:
    path = Path(tempfile.gettempdir()) / f"coterie-ports-{os.geteuid()}"
    return path.open("ab")
