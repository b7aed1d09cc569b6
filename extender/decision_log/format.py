"""The lines of a decision log: their form, both ways, derived from the events.

JSON lines of two kinds:

- `run` opens each run of the extender (a restart appends another), with its rules
- `event` is one input of the engine, in the order in which it came: `name` is the class of
  `extender.engine.events`, `input` its fields, `output` what it led to (an answer, a step of a bind
  or preemption, pods to requeue, or null). A step that writes a plan has the generation and the
  devices that were free.

A crash may cut the line that it was writing. Such a line, directly before the next run's header or
at the very end, ends its own run and no other. Anything else that is no line of a log is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from extender import bind, preemption
from extender.engine import events
from extender.errors import DecisionLogError
from extender.protocol import RawBody, Verb
from extender.rules import Rules
from kube import objects
from kube.documents import first_fault
from kube.errors import SettingsError
from topology.errors import TopologyError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from extender.engine.events import Event, Output

__all__ = [
    "VERSION",
    "EventLine",
    "HeaderLine",
    "Json",
    "line_of",
    "output_of",
    "read_event",
    "read_lines",
]

VERSION = 1
Json: TypeAlias = "dict[str, Any]"
"""The members of a JSON object."""


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class HeaderLine(_Line):
    """Opens a run."""

    kind: Literal["run"] = "run"
    v: Literal[1] = 1
    rules: Rules


class EventLine(_Line):
    """One input of the engine, and what it led to."""

    kind: Literal["event"] = "event"
    name: str
    input: Json
    output: Any


Line = HeaderLine | EventLine
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])
_TAGS = ("run", "event")

_EVENTS: Mapping[str, type[Event]] = {one.__name__: one for one in get_args(events.Event)}
_NAMES: Json = {
    # What the modules of these values import for type checkers only.
    **{name: getattr(bind, name) for name in bind.__all__},
    **{name: getattr(preemption, name) for name in preemption.__all__},
    **{name: getattr(objects, name) for name in objects.__all__},
    "Mapping": Mapping,
    "RawBody": RawBody,
    "Verb": Verb,
}


@cache
def _adapter(name: str) -> TypeAdapter[Event]:
    adapter: TypeAdapter[Event] = TypeAdapter(_EVENTS[name])
    adapter.rebuild(_types_namespace=_NAMES)
    return adapter


def line_of(event: Event, output: Output) -> Json:
    """The line of an event and what it led to."""
    name = type(event).__name__
    content = _adapter(name).dump_python(event, mode="json", by_alias=True)
    return {"kind": "event", "name": name, "input": content, "output": output_of(output)}


def output_of(output: Output) -> Any:  # noqa: ANN401 - JSON
    """What an event led to."""
    return to_jsonable_python(output)


def read_event(line: EventLine) -> Event:
    """The event of a line. Raises `DecisionLogError`."""
    if line.name not in _EVENTS:
        msg = f"event is {quote(line.name)}, expected one of: {', '.join(sorted(_EVENTS))}"
        raise DecisionLogError(msg)
    try:
        # Through text: strict JSON takes a list for a tuple, strict Python does not.
        return _adapter(line.name).validate_json(json.dumps(line.input), strict=True)
    except ValidationError as error:
        msg = f"input of {line.name}: {first_fault(error, whole='value')}"
        raise DecisionLogError(msg) from error


def read_lines(lines: Iterable[str]) -> Iterator[tuple[int, Line | None]]:
    """Read the lines with their numbers from 1, None for one that a crash cut off.

    Raises `DecisionLogError` for a line that is none of a log.
    """
    broken: tuple[int, str] | None = None
    for number, text in enumerate(lines, 1):
        line = _parse(number, text)
        if broken is not None:
            if not isinstance(line, HeaderLine):
                raise _not_a_line(*broken)
            yield broken[0], None
        broken = (number, text) if line is None else None
        if line is not None:
            yield number, line
    if broken is not None:
        if broken[1].endswith("\n"):
            raise _not_a_line(*broken)
        yield broken[0], None


def _parse(number: int, text: str) -> Line | None:
    """Read one line; None where it is not JSON."""
    try:
        return _LINE.validate_json(text)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] == "json_invalid":
            return None
        msg = f"decision log line {number}: {first_fault(error, whole='line', tags=_TAGS)}"
        raise DecisionLogError(msg) from error
    except (SettingsError, TopologyError) as error:
        msg = f"decision log line {number}: {error}"
        raise DecisionLogError(msg) from error


def _not_a_line(number: int, text: str) -> DecisionLogError:
    msg = f"decision log line {number} is {quote(text)}, expected a line of version {VERSION}"
    return DecisionLogError(msg)
