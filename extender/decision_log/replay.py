"""Replays a decision log.

Checks that this program still gives, byte for byte, the answers that a log recorded,
the plans included; and from which free devices each of those plans was made.
Nothing but what the log holds decides, so replaying needs nothing else.

It never reads the recorded outputs for anything but the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from extender.decision_log.format import HeaderLine, output_of, read_event, read_lines
from extender.engine import Gateway, make_engine
from extender.errors import DecisionLogError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extender.decision_log.format import EventLine, Json

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
    gateway: Gateway | None = None
    n_calls = 0
    cut: list[int] = []
    for number, line in read_lines(lines):
        if line is None:
            cut.append(number)
            continue
        if isinstance(line, HeaderLine):
            gateway = Gateway(make_engine(line.rules), reconciles_each=True)
            continue
        try:
            output = _handle(gateway, line)
        except DecisionLogError as error:
            msg = f"decision log line {number}: {error}"
            raise DecisionLogError(msg) from error
        if line.output is None and output is None:
            continue
        n_calls += 1
        difference = _compare(number, line.output, output)
        if difference is not None:
            return Replayed(n_calls, difference, tuple(cut))
    if gateway is None:
        found = "is cut off" if cut else "is empty"
        msg = f"decision log {found}, expected a header first"
        raise DecisionLogError(msg)
    return Replayed(n_calls, None, tuple(cut))


def _handle(gateway: Gateway | None, line: EventLine) -> Any:  # noqa: ANN401 - JSON
    """What the line's event leads to now. Raises `DecisionLogError`."""
    if gateway is None:
        msg = f"expected a header first, not an {line.kind}"
        raise DecisionLogError(msg)
    event = read_event(line)
    try:
        return output_of(gateway.handle(event))
    except ValueError as error:
        raise DecisionLogError(str(error)) from error


def _compare(number: int, recorded: object, replayed: object) -> Difference | None:
    """The first member that differs."""
    before, now = _members(recorded), _members(replayed)
    if before.keys().isdisjoint(now):
        before, now = {"output": recorded}, {"output": replayed}
    for what in dict.fromkeys((*before, *now)):
        if before.get(what) != now.get(what):
            return Difference(number, what, str(before.get(what)), str(now.get(what)))
    return None


def _members(output: object) -> Json:
    return cast("Json", output) if isinstance(output, dict) else {"output": output}
