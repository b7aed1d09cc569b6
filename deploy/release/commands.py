"""Programs of the machine that a step runs; never through a shell."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["ReleaseError", "run"]


class ReleaseError(Exception):
    """No image or release can be made; the message names what, its value and the expectation."""


def run(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command in a folder, with `environment` beside this process'; returns its output.

    Raises `ReleaseError` where the program is missing or ends with another code than 0.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(  # noqa: S603 - the callers' own commands, without a shell
            words,
            cwd=folder,
            env=dict(os.environ) | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        msg = f"{words[0]} is not there, expected it on PATH"
        raise ReleaseError(msg) from error
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()[-2000:]
        msg = f"{' '.join(words)} ended with code {done.returncode}, expected 0:\n{output}"
        raise ReleaseError(msg)
    return done.stdout
