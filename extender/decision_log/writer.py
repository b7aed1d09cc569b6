"""Writes the decision log: each event in the order in which it came, and what it led to.

What lines there are: `extender.decision_log.format`.
`extender.engine.gateway` calls it, `extender.decision_log.replay` reads what it wrote.
"""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING

from pydantic_core import to_jsonable_python

from extender.decision_log.format import VERSION, line_of
from extender.errors import DecisionLogError
from topology.errors import file_fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from extender.decision_log.format import Json
    from extender.engine.events import Event, Output
    from extender.rules import Rules

__all__ = ["DecisionLog"]


class DecisionLog:
    """Appends to an open text file; each line is flushed, so that a crash loses none.

    Raises `DecisionLogError` where the header cannot be written. Where a later line cannot (disk
    full), `on_end` is called once and nothing more is written: a log with a gap does not replay,
    and placing pods goes on.
    """

    def __init__(
        self,
        file: IO[str],
        rules: Rules,
        on_end: Callable[[DecisionLogError], None],
    ) -> None:
        self._file: IO[str] | None = file
        self._on_end = on_end
        _write(file, {"kind": "run", "v": VERSION, "rules": to_jsonable_python(rules)})

    def record(self, event: Event, output: Output) -> None:
        """Append one event and what it led to."""
        if self._file is None:
            return
        try:
            _write(self._file, line_of(event, output))
        except DecisionLogError as error:
            self._file = None
            self._on_end(error)


def _write(file: IO[str], line: Json) -> None:
    try:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
        file.flush()
    except OSError as error:
        msg = f"decision log cannot be written and ends here: {file_fault(error)}"
        raise DecisionLogError(msg) from error
