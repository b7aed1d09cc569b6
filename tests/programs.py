"""Runs a program's command line in this process, as a shell would."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Done:
    """How it ended and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both."""
        return self.stdout + self.stderr


def called(main: Callable[[Sequence[str]], object], *arguments: str) -> Done:
    """Call a program's `main`."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    return Done(
        code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()
    )
