"""Replays a decision log.

What it answers: whether this program still gives, byte for byte, the answers that a log recorded,
the plans of a live cluster included; and from which free devices each of those plans was made.
Nothing but what the log holds decides, so replaying needs nothing else.

It never reads the recorded outputs for anything but the comparison.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from extender.bind import ReadPod, WriteBinding, WriteResult, Written
from extender.decision_log.codec import FEEDS, Freshness, read_input
from extender.decision_log.format import Call, Fed, Header, StepTaken, read_lines
from extender.decision_log.gateway import Desk, LiveDesk
from extender.decision_log.writer import machine_digests, step_id, step_output
from extender.embedded import make_engine
from extender.engine import Engine
from extender.errors import ClusterSpecError, DecisionLogError
from extender.preemption import ReadNodes
from extender.protocol import Answer
from extender.state import LiveCluster
from topology.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extender.bind import Step
    from extender.decision_log.format import Woken

__all__ = ["Difference", "Replayed", "replay"]

_Told: TypeAlias = "dict[str, Any]"
"""The members of what was answered."""


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

    Answers are those to calls, steps of binds, and wakes. `cut` are the lines that a crash cut off,
    as far as the replay came.
    """

    n_calls: int
    difference: Difference | None
    cut: tuple[int, ...] = ()


def replay(lines: Iterable[str]) -> Replayed:
    """Give every recorded input again and compare the answers; stops at the first difference.

    Raises `DecisionLogError` for text that is not a decision log or has no run, and for a run whose
    cluster cannot be built any more.
    """
    run: _Run | None = None
    n_calls = 0
    cut: list[int] = []
    for number, line in read_lines(lines):
        if line is None:
            cut.append(number)
            continue
        if isinstance(line, Header):
            run = _start(number, line)
            recorded: _Told = {"machines": line.machines}
            replayed: _Told = {"machines": run.machines}
        elif run is None:
            msg = f"decision log line {number} is a {line.kind}, expected a header first"
            raise DecisionLogError(msg)
        elif isinstance(line, Fed):
            run.feed(number, line)
            continue
        else:
            n_calls += 1
            recorded, replayed = run.repeat(number, line)
        difference = _compare(number, recorded, replayed)
        if difference is not None:
            return Replayed(n_calls, difference, tuple(cut))
    if run is None:
        found = "is cut off" if cut else "is empty"
        msg = f"decision log {found}, expected a header first"
        raise DecisionLogError(msg)
    return Replayed(n_calls, None, tuple(cut))


def _start(number: int, header: Header) -> _Run:
    if header.cluster is None:
        cluster = LiveCluster(header.rules.resources, demand=header.rules.demand)
        engine = Engine(cluster, header.rules)
        return _Run(LiveDesk(engine, cluster, settles_each=True), {})
    try:
        engine = make_engine(header.cluster, header.rules)
    except ClusterSpecError as error:
        msg = f"decision log line {number}: {error}"
        raise DecisionLogError(msg) from error
    return _Run(Desk(engine), machine_digests(engine))


class _Run:
    """One run of the extender, repeated."""

    def __init__(self, desk: Desk, machines: dict[str, str]) -> None:
        self.machines = machines
        self._desk = desk
        self._steps: dict[str, Step | ReadNodes] = {}

    def feed(self, number: int, line: Fed) -> None:
        """Give the live cluster an input."""
        desk = self._live(number)
        if line.what not in FEEDS:
            expected = f"expected one of: {', '.join(sorted(FEEDS))}"
            msg = f"decision log line {number}: what is {quote(line.what)}, {expected}"
            raise DecisionLogError(msg)
        value = _read(number, line.what, line.input)
        if isinstance(value, Freshness):
            desk.set_freshness(is_synced=value.is_synced, observed_at_s=value.observed_at_s)
        else:
            getattr(desk, line.what)(value)

    def repeat(self, number: int, line: Call | StepTaken | Woken) -> tuple[_Told, _Told]:
        """What was recorded and what is said now, member by member."""
        if isinstance(line, Call):
            answer = self._call(number, line)
            recorded: _Told = {
                "outcome": line.outcome,
                "generation": line.generation,
                "answer": line.answer,
            }
            return recorded, {
                "outcome": answer.outcome.value,
                "generation": answer.generation,
                "answer": answer.body.decode(),
            }
        desk = self._live(number)
        if isinstance(line, StepTaken):
            output = self._step(number, line, desk)
            if not isinstance(output, Answer):
                self._steps[step_id(output)] = output
            return line.output, step_output(output)
        return {"uids": line.uids}, {"uids": [wake.uid for wake in desk.wakes(line.at_s)]}

    def _call(self, number: int, line: Call) -> Answer:
        try:
            return self._desk.answer(line.verb, line.body, line.at_s)
        except ValueError as error:
            msg = f"decision log line {number}: {error}"
            raise DecisionLogError(msg) from error

    def _step(self, number: int, line: StepTaken, desk: LiveDesk) -> Answer | Step | ReadNodes:
        if line.what == "begin_bind":
            return desk.begin_bind(line.body, line.at_s)
        if line.what == "begin_preempt":
            return desk.begin_preempt(line.body, line.at_s)
        step = self._steps.pop(line.step_id, None)
        if isinstance(step, ReadNodes):
            return self._preempt_step(number, line, desk, step)
        if isinstance(step, ReadPod) and line.what == "pod_read":
            return desk.pod_read(step, line.body_or_none, line.at_s)
        if isinstance(step, WriteBinding) and line.what == "binding_written":
            written = Written(line.result or WriteResult.UNKNOWN, line.detail)
            return desk.binding_written(step, written, line.at_s)
        if step is not None and line.what == "abandon":
            return desk.abandon(step, line.detail, line.at_s)
        raise _no_step(number, line)

    def _preempt_step(
        self, number: int, line: StepTaken, desk: LiveDesk, step: ReadNodes
    ) -> Answer | ReadNodes:
        if line.what == "nodes_read":
            return desk.nodes_read(step, _read(number, line.what, line.read), line.at_s)
        if line.what == "abandon_preempt":
            return desk.abandon_preempt(step, line.detail, line.at_s)
        raise _no_step(number, line)

    def _live(self, number: int) -> LiveDesk:
        if isinstance(self._desk, LiveDesk):
            return self._desk
        msg = f"decision log line {number} is one of a live cluster, expected an embedded one's"
        raise DecisionLogError(msg)


def _read(number: int, what: str, content: object) -> Any:  # noqa: ANN401 - as `read_input`
    try:
        return read_input(what, json.dumps(content).encode())
    except DecisionLogError as error:
        msg = f"decision log line {number}: {error}"
        raise DecisionLogError(msg) from error


def _no_step(number: int, line: StepTaken) -> DecisionLogError:
    msg = f"decision log line {number}: {line.what} of {quote(line.step_id)}, expected such a step"
    return DecisionLogError(msg)


def _compare(number: int, recorded: _Told, replayed: _Told) -> Difference | None:
    """The first member that differs."""
    for what in dict.fromkeys((*recorded, *replayed)):
        before, now = recorded.get(what), replayed.get(what)
        if before != now:
            return Difference(number, what, str(before), str(now))
    return None
