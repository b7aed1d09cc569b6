"""Another program, run to its end without a shell between.

What it answers: what the program printed; or, as the rest of a sentence that began with what was
asked of it, why that is nothing to go by: it cannot be started, does not end, or ends with another
status than 0. It must never know what a program is for.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from plugin.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["run_program"]

MAX_SAID = 300
"""Characters of a program's own words that a message repeats: the end of the last line that it
said, on standard error if there is any. There stands what it began with."""


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
        msg = f"ended with {error.returncode}, expected 0: {said[-MAX_SAID:]!r}"
        raise ProgramError(msg) from error
    return done.stdout + done.stderr
