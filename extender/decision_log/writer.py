"""Writes the decision log: each event in the order in which it came, and what it led to.

What lines there are: `extender.decision_log.format`; each event's: `extender.decision_log.codec`.
`extender.engine.gateway` calls it, `extender.decision_log.replay` reads what it wrote.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import IO, TYPE_CHECKING

from extender.decision_log.codec import line_of
from extender.decision_log.format import VERSION
from extender.errors import DecisionLogError
from topology.errors import file_fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from extender.decision_log.codec import Json
    from extender.embedded import ClusterSpec
    from extender.engine import Engine
    from extender.engine.events import Event, Output

__all__ = ["DecisionLog", "machine_digests"]


class DecisionLog:
    """Appends to an open text file; each line is flushed, so that a crash loses none.

    Raises `DecisionLogError` where the header cannot be written. Where a later line cannot (disk
    full), `on_end` is called once and nothing more is written: a log with a gap does not replay,
    and placing pods goes on.
    """

    def __init__(
        self,
        file: IO[str],
        spec: ClusterSpec | None,
        engine: Engine,
        on_end: Callable[[DecisionLogError], None],
    ) -> None:
        self._file: IO[str] | None = file
        self._on_end = on_end
        header: Json = {
            "kind": "run",
            "v": VERSION,
            "mode": "live" if spec is None else "embedded",
            "cluster": None if spec is None else spec.model_dump(mode="json"),
            "machines": {} if spec is None else machine_digests(engine),
            "rules": asdict(engine.rules),
        }
        _write(file, header)

    def record(self, event: Event, output: Output) -> None:
        """Append one event and what it led to."""
        if self._file is None:
            return
        try:
            _write(self._file, line_of(event, output))
        except DecisionLogError as error:
            self._file = None
            self._on_end(error)


def machine_digests(engine: Engine) -> dict[str, str]:
    """Digest of each machine type, by kind; a recording that changed shows here."""
    kinds = {view.kind.name: view.kind for view in engine.cluster.snapshot.nodes.values()}
    return {
        name: kind.machine.digest if kind.machine else "" for name, kind in sorted(kinds.items())
    }


def _write(file: IO[str], line: Json) -> None:
    try:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
        file.flush()
    except OSError as error:
        msg = f"decision log cannot be written and ends here: {file_fault(error)}"
        raise DecisionLogError(msg) from error
