"""Programs that print, fail and hang. Python itself stands for them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from plugin.errors import ProgramError
from plugin.programs import run_program


def run(script: str, *, timeout_s: float = 30.0, **variables: str) -> str:
    """What a script prints."""
    words = [sys.executable, "-c", f"import os, signal, sys\n{script}"]
    return run_program(words, timeout_s=timeout_s, variables=variables)


def test_all_that_is_printed_comes_back():
    """Some programs say on standard error what they are; bytes that are no text end nothing."""
    script = "print('out'); print('err', file=sys.stderr); os.write(2, b'\\xff')"
    assert run(script) == "out\nerr\n�"


@pytest.fixture
def _said(tmp_path):
    """Input is waiting on this process' standard input."""
    file = tmp_path / "said"
    file.write_text("yes")
    kept = os.dup(0)
    with file.open() as said:
        os.dup2(said.fileno(), 0)
    yield
    os.dup2(kept, 0)
    os.close(kept)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param("sys.exit(3)", "ended with 3, expected 0: ''", id="without a word"),
        pytest.param("os.kill(os.getpid(), 9)", "ended with -9, expected 0: ''", id="killed"),
        pytest.param(
            "print('one'); sys.exit('two\\nthree\\n \\n')",
            "ended with 1, expected 0: 'three'",
            id="the last line of standard error",
        ),
        pytest.param(
            "print('one\\n\\ntwo\\n'); sys.exit(1)",
            "ended with 1, expected 0: 'two'",
            id="the last line of standard output",
        ),
        pytest.param(
            "sys.exit('x' * 400 + 'end')",
            f"ended with 1, expected 0: '{'x' * 297}end'",
            id="the end of a long line",
        ),
        pytest.param(
            "sys.exit('\\x1b[31mred')",
            r"ended with 1, expected 0: '\x1b[31mred'",
            id="nothing that a terminal obeys",
        ),
    ],
)
def test_a_program_that_fails(script, message):
    """Its own words say why, in one sentence."""
    with pytest.raises(ProgramError) as raised:
        run(script)
    assert str(raised.value) == message


def abandoned():
    """The threads that wait for programs which were given up."""
    return [thread for thread in threading.enumerate() if thread.name == "abandoned program"]


def test_a_program_that_hangs():
    """It is killed, or it would stay for ever."""
    with pytest.raises(ProgramError, match=r"^no end after 0 s$"):
        run("signal.pause()", timeout_s=0)
    for thread in abandoned():
        thread.join(30)
    assert abandoned() == []


def test_a_program_that_cannot_be_killed(monkeypatch, tmp_path):
    """`nvidia-smi` in a call that hangs in the driver: the bundle is written without it."""
    may_end = tmp_path / "may-end"
    os.mkfifo(may_end)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "kill", lambda _: None)
        with pytest.raises(ProgramError, match=r"^no end after 0 s$"):
            run("open(os.environ['MAY_END']).read()", timeout_s=0, MAY_END=str(may_end))
    assert len(abandoned()) == 1
    may_end.write_text("now")
    for thread in abandoned():
        thread.join(30)


def test_a_program_that_is_not_there(tmp_path):
    """Named, with what the system says."""
    program = str(tmp_path / "none")
    with pytest.raises(ProgramError) as raised:
        run_program([program], timeout_s=1.0)
    assert str(raised.value) == f"'{program}' cannot be started: No such file or directory"
