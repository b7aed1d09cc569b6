"""The decision log: what was asked, in which state, what was answered; and its replay.

What it answers: whether this program still gives, byte for byte, the answers that a log recorded. A
log is JSON lines. A header line opens each run of the extender (a restart appends another): the
cluster's description, the digest of each machine type, and the settings that decisions depend on.
Each further line is one call: verb, time, raw input, and the answer with its outcome and the
ledger's generation. Nothing else decides, so replaying needs nothing else.

A crash may cut the line that it was writing. Such a line, directly before the next run's header or
at the very end, ends its own run and no other; a replay names it. Anything else that is no line of
a log is refused.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from extender.cluster import ClusterSpec, lay_out
from extender.embedded import EmbeddedCluster
from extender.engine import Engine, Rules, Verb
from extender.errors import ClusterSpecError, DecisionLogError, SettingsError
from extender.faults import first_fault
from topology.errors import TopologyError, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from extender.engine import Answer

__all__ = ["RECORDED", "DecisionLog", "Difference", "Replayed", "make_engine", "replay"]

VERSION = 1
RECORDED = frozenset({Verb.FILTER, Verb.PRIORITIZE, Verb.BIND, Verb.END})
"""The verbs that are logged: those that decide or change something."""


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class _Header(_Line):
    kind: Literal["run"] = "run"
    v: Literal[1] = 1
    cluster: ClusterSpec
    machines: dict[str, str]
    rules: Rules


class _Call(_Line):
    kind: Literal["call"] = "call"
    verb: Verb
    at_s: float
    input: str | None = None
    input_base64: str | None = None
    outcome: str
    generation: int
    answer: str

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

    @model_validator(mode="after")
    def _has_input(self) -> _Call:
        if (self.input is None) == (self.input_base64 is None):
            msg = "expected one of input and input_base64"
            raise ValueError(msg)
        return self

    @property
    def body(self) -> bytes:
        if self.input_base64 is not None:
            return base64.b64decode(self.input_base64)
        return (self.input or "").encode()


_LINE: TypeAdapter[_Header | _Call] = TypeAdapter(
    Annotated[_Header | _Call, Field(discriminator="kind")]
)
_TAGS = ("run", "call")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first call that was answered otherwise. `line` counts from 1."""

    line: int
    what: str
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found: the number of calls that were compared, and the first difference.

    `cut` are the lines that a crash cut off, as far as the replay came.
    """

    n_calls: int
    difference: Difference | None
    cut: tuple[int, ...] = ()


def make_engine(spec: ClusterSpec, rules: Rules) -> Engine:
    """An engine over the described cluster, nothing placed. Raises `ClusterSpecError`."""
    return Engine(EmbeddedCluster(lay_out(spec), demand=rules.demand), rules)


class DecisionLog:
    """Appends to an open text file; each line is flushed, so that a crash loses none.

    After a line that could not be written (disk full) nothing is written any more: a log with a gap
    does not replay, and placing pods goes on.
    """

    def __init__(self, file: IO[str], spec: ClusterSpec, engine: Engine) -> None:
        self._file: IO[str] | None = file
        header: dict[str, object] = {
            "kind": "run",
            "v": VERSION,
            "cluster": spec.model_dump(mode="json"),
            "machines": _digests(engine),
            "rules": asdict(engine.rules),
        }
        self._write(header)

    def record(self, verb: Verb, body: bytes, at_s: float, answer: Answer) -> None:
        """Append one call.

        Raises `DecisionLogError` where this line could not be written; later calls do nothing.
        """
        call: dict[str, object] = {"kind": "call", "verb": verb.value, "at_s": at_s}
        try:
            call["input"] = body.decode()
        except UnicodeDecodeError:
            call["input_base64"] = base64.b64encode(body).decode()
        call["outcome"] = answer.outcome.value
        call["generation"] = answer.generation
        call["answer"] = answer.body.decode()
        self._write(call)

    def _write(self, line: dict[str, object]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            self._file = None
            msg = f"decision log cannot be written and ends here: {error}"
            raise DecisionLogError(msg) from error


def replay(lines: Iterable[str]) -> Replayed:
    """Answer every recorded call again and compare; stops at the first difference.

    Raises `DecisionLogError` for text that is not a decision log or has no run, and for a run whose
    cluster cannot be built any more.
    """
    engine: Engine | None = None
    n_calls = 0
    cut: list[int] = []
    for number, line in _read(lines):
        if line is None:
            cut.append(number)
            continue
        if isinstance(line, _Header):
            engine = _restart(number, line)
            difference = _compare(number, "machines", line.machines, _digests(engine))
        elif engine is None:
            msg = f"decision log line {number} is a call, expected a header first"
            raise DecisionLogError(msg)
        else:
            n_calls += 1
            difference = _replay_call(number, line, engine)
        if difference is not None:
            return Replayed(n_calls, difference, tuple(cut))
    if engine is None:
        found = "is cut off" if cut else "is empty"
        msg = f"decision log {found}, expected a header first"
        raise DecisionLogError(msg)
    return Replayed(n_calls, None, tuple(cut))


def _restart(number: int, header: _Header) -> Engine:
    try:
        return make_engine(header.cluster, header.rules)
    except ClusterSpecError as error:
        msg = f"decision log line {number}: {error}"
        raise DecisionLogError(msg) from error


def _replay_call(number: int, call: _Call, engine: Engine) -> Difference | None:
    answer = engine.answer(call.verb, call.body, call.at_s)
    return (
        _compare(number, "outcome", call.outcome, answer.outcome.value)
        or _compare(number, "generation", call.generation, answer.generation)
        or _compare(number, "answer", call.answer, answer.body.decode())
    )


def _compare(number: int, what: str, recorded: object, replayed: object) -> Difference | None:
    if recorded == replayed:
        return None
    return Difference(number, what, str(recorded), str(replayed))


def _read(lines: Iterable[str]) -> Iterator[tuple[int, _Header | _Call | None]]:
    """Read the lines with their numbers, None for one that a crash cut off."""
    broken: tuple[int, str] | None = None
    for number, text in enumerate(lines, 1):
        line = _parse(number, text)
        if broken is not None:
            if not isinstance(line, _Header):
                raise _not_a_line(*broken)
            yield broken[0], None
        broken = (number, text) if line is None else None
        if line is not None:
            yield number, line
    if broken is not None:
        if broken[1].endswith("\n"):
            raise _not_a_line(*broken)
        yield broken[0], None


def _parse(number: int, text: str) -> _Header | _Call | None:
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


def _digests(engine: Engine) -> dict[str, str]:
    """Digest of each machine type, by kind; a recording that changed shows here."""
    kinds = {view.kind.name: view.kind for view in engine.cluster.snapshot.nodes.values()}
    return {
        name: kind.machine.digest if kind.machine else "" for name, kind in sorted(kinds.items())
    }
