"""The lines of a decision log: their form, and reading them.

Reads a line, or reports what is wrong with it. JSON lines of five kinds:

- `run` opens each run of the extender (a restart appends another), with its rules
- `feed` is one input of the state, in the order in which it came: `what` names the event
  (`extender.decision_log.codec`), `input` is what it holds
- `call` is a verb: time, raw input, and the answer with its outcome and the state's generation
- `step` is one step of a bind or preemption: what came in, and what it led to (`output`: an
  answer, a pod or nodes to read, or a Binding to write; where that replans with the devices that
  were free and the generation)
- `wakes` are the unschedulable pods requeued at one moment

A crash may cut the line that it was writing. Such a line, directly before the next run's header or
at the very end, ends its own run and no other. Anything else that is no line of a log is refused.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from extender.bind import WriteResult
from extender.errors import DecisionLogError
from extender.protocol import Verb
from extender.rules import Rules
from kube.documents import first_fault
from kube.errors import SettingsError
from topology.errors import TopologyError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "VERSION",
    "CallLine",
    "FeedLine",
    "HeaderLine",
    "RequeueLine",
    "StepLine",
    "read_lines",
    "to_text",
]

VERSION = 1


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class HeaderLine(_Line):
    """Opens a run."""

    kind: Literal["run"] = "run"
    v: Literal[1] = 1
    rules: Rules


class _Bytes(_Line):
    """Raw input: as text where it is UTF-8, else as base64."""

    input: str | None = None
    input_base64: str | None = None

    @field_validator("input_base64")
    @classmethod
    def _is_base64(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                base64.b64decode(value, validate=True)
            except ValueError:
                msg = f"input_base64 is {quote(value)}, expected base64"
                raise ValueError(msg) from None
        return value

    @property
    def body(self) -> bytes:
        """The input as it came."""
        if self.input_base64 is not None:
            return base64.b64decode(self.input_base64)
        return (self.input or "").encode()


class CallLine(_Bytes):
    """One call of a verb. `n_rated`: how many node states it had time to rate, where not all."""

    kind: Literal["call"] = "call"
    verb: Verb
    at_s: float
    n_rated: Annotated[int, Field(ge=0)] | None = None
    outcome: str
    generation: int
    answer: str

    @model_validator(mode="after")
    def _has_input(self) -> CallLine:
        if (self.input is None) == (self.input_base64 is None):
            msg = "expected one of input and input_base64"
            raise ValueError(msg)
        return self


class FeedLine(_Line):
    """One input of the state. Its `input` is checked by what it is."""

    kind: Literal["feed"] = "feed"
    what: str
    input: Any


class StepLine(_Bytes):
    """One step of a bind or preemption. `what` names the event.

    The first of a row has an input, `pod_read` has one where there was a pod; `binding_written` has
    `result` and `detail`, `nodes_read` has `read`, what was abandoned has `detail`.
    """

    kind: Literal["step"] = "step"
    what: str
    at_s: float
    step_id: str = ""
    result: WriteResult | None = None
    detail: str = ""
    read: Any = None
    output: dict[str, Any]

    @property
    def body_or_none(self) -> bytes | None:
        """The input as it came, None where there was none."""
        return None if self.input is None and self.input_base64 is None else self.body


class RequeueLine(_Line):
    """The pods to requeue at one moment, by uid."""

    kind: Literal["wakes"] = "wakes"
    at_s: float
    uids: list[str]


Line = HeaderLine | CallLine | FeedLine | StepLine | RequeueLine
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])
_TAGS = ("run", "call", "feed", "step", "wakes")


def to_text(body: bytes) -> dict[str, str]:
    """Raw input as the members of a line."""
    try:
        return {"input": body.decode()}
    except UnicodeDecodeError:
        return {"input_base64": base64.b64encode(body).decode()}


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
