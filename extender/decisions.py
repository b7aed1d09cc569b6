"""The decision log: what was asked, in which state, what was answered; and its replay.

What it answers: whether this program still gives, byte for byte, the answers that a log recorded. A
log is JSON lines. A header line opens each run of the extender (a restart appends another): the
cluster's description, the digest of each machine type, and the settings that decisions depend on.
Each further line is one call: verb, time, raw input, and the answer with its outcome and the
ledger's generation. Nothing else decides, so replaying needs nothing else.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from extender.cluster import ClusterSpec, lay_out
from extender.embedded import EmbeddedCluster
from extender.engine import Engine, Rules, Verb
from extender.errors import DecisionLogError
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from extender.engine import Answer

__all__ = ["RECORDED", "DecisionLog", "Difference", "Replayed", "make_engine", "replay"]

VERSION = 1
RECORDED = frozenset({Verb.FILTER, Verb.PRIORITIZE, Verb.BIND, Verb.END})
"""The verbs that are logged: those that decide or change something."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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

    @property
    def body(self) -> bytes:
        if self.input_base64 is not None:
            return base64.b64decode(self.input_base64)
        return (self.input or "").encode()


_LINE: TypeAdapter[_Header | _Call] = TypeAdapter(
    Annotated[_Header | _Call, Field(discriminator="kind")]
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first call that was answered otherwise. `line` counts from 1."""

    line: int
    what: str
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found: the number of calls that were compared, and the first difference."""

    n_calls: int
    difference: Difference | None


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

    Raises `DecisionLogError` for text that is not a decision log, `ClusterSpecError` for a cluster
    that cannot be built any more.
    """
    engine: Engine | None = None
    n_calls = 0
    for number, line in _read(lines):
        if isinstance(line, _Header):
            engine = make_engine(line.cluster, line.rules)
            difference = _compare(number, "machines", line.machines, _digests(engine))
        elif engine is None:
            msg = f"decision log line {number} is a call, expected a header first"
            raise DecisionLogError(msg)
        else:
            n_calls += 1
            difference = _replay_call(number, line, engine)
        if difference is not None:
            return Replayed(n_calls, difference)
    return Replayed(n_calls, None)


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


def _read(lines: Iterable[str]) -> Iterator[tuple[int, _Header | _Call]]:
    for number, text in enumerate(lines, 1):
        try:
            yield number, _LINE.validate_json(text)
        except ValidationError as error:
            msg = (
                f"decision log line {number} is {quote(text)}, expected a line of version {VERSION}"
            )
            raise DecisionLogError(msg) from error


def _digests(engine: Engine) -> dict[str, str]:
    """Digest of each machine type, by kind; a recording that changed shows here."""
    kinds = {view.kind.name: view.kind for view in engine.cluster.snapshot.nodes.values()}
    return {
        name: kind.machine.digest if kind.machine else "" for name, kind in sorted(kinds.items())
    }
