"""Another program, run to its end without a shell between.

The result is what the program printed. The error continues a sentence that names the program's
task: it cannot be started, does not end, or ends with another status than 0.
"""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

from plugin.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["run_program"]

MAX_OUTPUT = 300
"""Characters of a program's output that a message repeats: the end of its last line, on standard
error if there is any."""


def run_program(
    words: Sequence[str], *, timeout_s: float, variables: Mapping[str, str] | None = None
) -> str:
    """Run it, with `variables` beside our own; standard output, then standard error.

    Raises `ProgramError`. Standard input is empty.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - settings of the owner
            words,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        msg = f"{words[0]!r} cannot be started: {error.strerror}"
        raise ProgramError(msg) from error
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        msg = f"no end after {timeout_s:g} s"
        raise ProgramError(msg) from error
    finally:
        if process.returncode is None:
            _abandon(process)
    if process.returncode:
        said = (errors.strip() or output.strip()).rpartition("\n")[2]
        msg = f"ended with {process.returncode}, expected 0: {said[-MAX_OUTPUT:]!r}"
        raise ProgramError(msg, output + errors)
    return output + errors


def _abandon(process: subprocess.Popen[str]) -> None:
    """Kill a program without waiting for its end: one that hangs in a driver has none."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    threading.Thread(target=process.wait, name="abandoned program", daemon=True).start()
