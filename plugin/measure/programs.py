"""Another program, run to its end without a shell between.

The result is what the program printed. The error continues a sentence that names the program's
task: it cannot be started, does not end, or ends with another status than 0.
"""

from __future__ import annotations

import os
import subprocess
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
        done = subprocess.run(  # noqa: S603 - settings of the owner
            words,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=True,
        )
    except OSError as error:
        msg = f"{words[0]!r} cannot be started: {error.strerror}"
        raise ProgramError(msg) from error
    except subprocess.TimeoutExpired as error:
        msg = f"no end after {timeout_s:g} s"
        raise ProgramError(msg) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or error.stdout.strip()).rpartition("\n")[2]
        msg = f"ended with {error.returncode}, expected 0: {said[-MAX_OUTPUT:]!r}"
        raise ProgramError(msg) from error
    return done.stdout + done.stderr
