"""Programs start, are awaited and end, whatever becomes of the process that started them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from tests.cluster.control.processes import Program, ProgramFailed

pytestmark = pytest.mark.cluster

ENDS_WITHIN_S = 30
SLEEP = ("-c", "import time; time.sleep(600)")
STUBBORN = (
    "-c",
    """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('deaf', flush=True)
time.sleep(600)
""",
)
PARENT = """
import sys, threading
from pathlib import Path
from tests.cluster.control.processes import Program
program = Program(
    name="child",
    command=[sys.executable, "-c", "import time; time.sleep(600)"],
    log=Path(sys.argv[1]),
    is_ready=lambda: True,
)
program.start()
print(program.pid, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def make(tmp_path):
    """Make a Python program that is ended with the test."""
    programs = []

    def make_program(*arguments, is_ready=lambda: True, within_s=60.0):
        program = Program(
            name="child",
            command=[sys.executable, *arguments],
            log=tmp_path / "child.log",
            is_ready=is_ready,
            start_within_s=within_s,
        )
        programs.append(program)
        return program

    yield make_program
    for program in programs:
        program.kill()


def await_end(pidfd):
    """Wait until the process of a pidfd has ended, whoever's child it is."""
    readable, _, _ = select.select([pidfd], [], [], ENDS_WITHIN_S)
    os.close(pidfd)
    return bool(readable)


def test_an_early_exit_is_reported_with_the_log(make):
    """Whoever reads the failure needs the reason that the program gave."""
    program = make("-c", "import sys; sys.exit('no such flag')", is_ready=lambda: False)
    with pytest.raises(ProgramFailed, match=r"(?s)child ended with code 1 .*no such flag"):
        program.start()


def test_a_program_that_is_never_ready_is_ended(make):
    """A start that fails must leave nothing behind."""
    program = make(*SLEEP, is_ready=lambda: False, within_s=0.1)
    with pytest.raises(ProgramFailed, match=r"not ready within 0\.1 s"):
        program.start()
    assert not program.is_running


def test_a_program_that_is_deaf_to_sigterm_is_killed(make):
    """`stop` must end in bounded time."""
    program = make(*STUBBORN)
    program.is_ready = lambda: "deaf" in program.log_tail()
    program.start()
    program.stop(within_s=0.1)
    assert not program.is_running


def test_the_environment_is_not_inherited(make, monkeypatch):
    """A developer's settings must not reach the programs under test."""
    monkeypatch.setenv("COTERIE_EXTENDER_DEMAND", "1")
    program = make("-c", "import os, time; print(*os.environ, flush=True); time.sleep(600)")
    program.is_ready = lambda: "HOME" in program.log_tail()
    program.start()
    assert "COTERIE" not in program.log_tail()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_programs_end_with_the_process_that_started_them(tmp_path, root, number):
    """Ctrl-C, a CI that gives up, the kernel short of memory: nothing may be left behind."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path / "child.log"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(number)
        assert await_end(pidfd)
