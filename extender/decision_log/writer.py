"""Writes the decision log: what came in, in which order, and what was answered.

What it answers: nothing; it appends. The form of the lines is `extender.decision_log.format`', who
calls it is `extender.decision_log.gateway`, and `extender.decision_log.replay` reads it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, TypeAlias

from extender.bind import WriteBinding
from extender.decision_log.format import VERSION, to_text
from extender.errors import DecisionLogError
from extender.preemption import ReadNodes
from extender.protocol import Answer, Verb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from extender.bind import Step, Written
    from extender.embedded import ClusterSpec
    from extender.engine import Engine
    from extender.unschedulable import Wake

    Output: TypeAlias = Answer | Step | ReadNodes

__all__ = ["RECORDED", "DecisionLog", "machine_digests", "step_id", "step_output"]

RECORDED = frozenset(Verb) - {Verb.EXPLAIN}
"""The verbs that are logged: those that decide or change something."""


class DecisionLog:
    """Appends to an open text file; each line is flushed, so that a crash loses none.

    Every method raises `DecisionLogError` where its line could not be written (disk full), once:
    later calls do nothing, since a log with a gap does not replay, and placing pods goes on.
    """

    def __init__(self, file: IO[str], spec: ClusterSpec | None, engine: Engine) -> None:
        self._file: IO[str] | None = file
        header: dict[str, object] = {
            "kind": "run",
            "v": VERSION,
            "mode": "live" if spec is None else "embedded",
            "cluster": None if spec is None else spec.model_dump(mode="json"),
            "machines": {} if spec is None else machine_digests(engine),
            "rules": asdict(engine.rules),
        }
        self._write(header)

    def record(self, verb: Verb, body: bytes, at_s: float, answer: Answer) -> None:
        """Append one call."""
        call: dict[str, object] = {"kind": "call", "verb": verb.value, "at_s": at_s}
        call |= to_text(body)
        call["outcome"] = answer.outcome.value
        call["generation"] = answer.generation
        call["answer"] = answer.body.decode()
        self._write(call)

    def feed(self, what: str, value: object) -> None:
        """Append one input of a live cluster; `value` in JSON's own types."""
        self._write({"kind": "feed", "what": what, "input": value})

    def begin(self, what: str, body: bytes, at_s: float, output: Output) -> None:
        """Append the beginning of a bind or a preemption."""
        self._step(what, at_s, None, to_text(body), output)

    def read(self, step: Step, pod: bytes | None, at_s: float, output: Output) -> None:
        """Append a pod that was read."""
        self._step("pod_read", at_s, step, {} if pod is None else to_text(pod), output)

    def written(self, step: Step, written: Written, at_s: float, output: Output) -> None:
        """Append the end of a write."""
        came = {"result": written.result.value, "detail": written.detail}
        self._step("binding_written", at_s, step, came, output)

    def nodes_read(self, step: ReadNodes, read: object, at_s: float, output: Output) -> None:
        """Append nodes that were read, in JSON's own types."""
        self._step("nodes_read", at_s, step, {"read": read}, output)

    def abandoned(
        self, what: str, step: Step | ReadNodes, detail: str, at_s: float, output: Answer
    ) -> None:
        """Append a step that nobody finished."""
        self._step(what, at_s, step, {"detail": detail}, output)

    def wakes(self, at_s: float, wakes: Sequence[Wake]) -> None:
        """Append the pods woken at one moment."""
        self._write({"kind": "wakes", "at_s": at_s, "uids": [wake.uid for wake in wakes]})

    def _step(
        self,
        what: str,
        at_s: float,
        step: Step | ReadNodes | None,
        came: Mapping[str, object],
        output: Output,
    ) -> None:
        line: dict[str, object] = {"kind": "step", "what": what, "at_s": at_s}
        if step is not None:
            line["step_id"] = step_id(step)
        self._write({**line, **came, "output": step_output(output)})

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


def step_id(step: Step | ReadNodes) -> str:
    """What a step is called in the log: which verb's, and the how many-th in this run."""
    if isinstance(step, ReadNodes):
        return f"preempt-{step.preempt_id}"
    return f"bind-{step.bind_id}"


def step_output(output: Output) -> dict[str, object]:
    """What a step led to, in JSON's own types."""
    if isinstance(output, Answer):
        return {
            "end": output.outcome.value,
            "reason": output.reason.label if output.reason else "",
            "generation": output.generation,
            "answer": output.body.decode(),
        }
    told: dict[str, object] = {"step_id": step_id(output)}
    if isinstance(output, ReadNodes):
        return {"next": "read_nodes"} | told | {"names": list(output.names)}
    told |= {"uid": output.uid, "node": output.node}
    if not isinstance(output, WriteBinding):
        return {"next": "read"} | told
    told |= {
        "resource_version": output.resource_version,
        "annotations": dict(output.annotations),
    }
    if output.planned_from is not None:
        told["generation"] = output.planned_from.generation
        told["free"] = list(output.planned_from.free)
    return {"next": "write"} | told


def machine_digests(engine: Engine) -> dict[str, str]:
    """Digest of each machine type, by kind; a recording that changed shows here."""
    kinds = {view.kind.name: view.kind for view in engine.cluster.snapshot.nodes.values()}
    return {
        name: kind.machine.digest if kind.machine else "" for name, kind in sorted(kinds.items())
    }
