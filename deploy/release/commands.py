"""Programs of the machine that a step runs: git, uv, apt-get, dpkg-deb.

Runs a command to its end and returns what it printed. It never passes a command to a shell.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from deploy.release.errors import StepFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["run"]

_TAIL = 2000
"""Characters of a failed program's output that its error repeats."""


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command in a folder; returns its standard output.

    `environment` is the whole environment, by default this process'. Raises `StepFailed` where the
    program is missing or ends with another code than 0.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(  # noqa: S603 - the callers' own commands, without a shell
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        msg = f"{words[0]} is not there: {error}"
        raise StepFailed(msg) from error
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()[-_TAIL:]
        msg = f"{' '.join(words)} ended with code {done.returncode}, expected 0:\n{output}"
        raise StepFailed(msg)
    return done.stdout
