"""Replays a decision log.

Checks that this program still gives, byte for byte, the answers that a log recorded,
the plans included; and from which free devices each of those plans was made.
Nothing but what the log holds decides, so replaying needs nothing else.

It never reads the recorded outputs for anything but the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.decision_log.codec import (
    PendingStep,
    output_of,
    read_event,
    recorded_output,
    step_id,
)
from extender.decision_log.format import FeedLine, HeaderLine, read_lines
from extender.engine import Gateway, make_engine
from extender.errors import DecisionLogError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extender.decision_log.codec import EventLine, Json
    from extender.rules import Rules

__all__ = ["Replayed", "replay"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first line that was answered otherwise. `line` counts from 1."""

    line: int
    what: str
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found: the number of answers compared, and the first difference.

    Answers are those to calls, steps of binds, and requeues. `cut` are the lines that a crash cut
    off, as far as the replay came.
    """

    n_calls: int
    difference: Difference | None
    cut: tuple[int, ...] = ()


def replay(lines: Iterable[str]) -> Replayed:
    """Handle every recorded event again and compare; stops at the first difference.

    Raises `DecisionLogError` for text that is not a decision log or has no run.
    """
    run: _Run | None = None
    n_calls = 0
    cut: list[int] = []
    for number, line in read_lines(lines):
        if line is None:
            cut.append(number)
            continue
        try:
            if isinstance(line, HeaderLine):
                run = _Run(line.rules)
                continue
            replayed = _handle(run, line)
            if isinstance(line, FeedLine):
                continue
            n_calls += 1
            recorded = recorded_output(line)
        except DecisionLogError as error:
            msg = f"decision log line {number}: {error}"
            raise DecisionLogError(msg) from error
        difference = _compare(number, recorded, replayed)
        if difference is not None:
            return Replayed(n_calls, difference, tuple(cut))
    if run is None:
        found = "is cut off" if cut else "is empty"
        msg = f"decision log {found}, expected a header first"
        raise DecisionLogError(msg)
    return Replayed(n_calls, None, tuple(cut))


class _Run:
    """One run of the extender, repeated."""

    def __init__(self, rules: Rules) -> None:
        self._gateway = Gateway(make_engine(rules), reconciles_each=True)
        self._steps: dict[str, PendingStep] = {}

    def handle(self, line: EventLine) -> Json:
        """What the line's event leads to now. Raises `DecisionLogError`."""
        event = read_event(line, self._steps)
        try:
            output = self._gateway.handle(event)
        except ValueError as error:
            raise DecisionLogError(str(error)) from error
        if isinstance(output, PendingStep):
            self._steps[step_id(output)] = output
        return output_of(event, output)


def _handle(run: _Run | None, line: EventLine) -> Json:
    if run is None:
        msg = f"expected a header first, not a {line.kind}"
        raise DecisionLogError(msg)
    return run.handle(line)


def _compare(number: int, recorded: Json, replayed: Json) -> Difference | None:
    """The first member that differs."""
    for what in dict.fromkeys((*recorded, *replayed)):
        before, now = recorded.get(what), replayed.get(what)
        if before != now:
            return Difference(number, what, str(before), str(now))
    return None
