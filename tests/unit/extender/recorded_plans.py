"""The plans that a decision log records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.decision_log.format import EventLine, read_lines
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """A plan of a live cluster, and what it was made from: the devices that the pod could have.

    `text` is None on a node without usable topology, where the kubelet chooses.
    """

    line: int
    uid: str
    node: str
    generation: int
    free: tuple[str, ...]
    text: str | None


def recorded_plans(lines: Iterable[str]) -> Iterator[RecordedPlan]:
    """The plans that a log records, without repeating anything.

    Raises `DecisionLogError` for text that is not a decision log.
    """
    for number, line in read_lines(lines):
        output = line.output if isinstance(line, EventLine) else None
        if isinstance(output, dict) and output.get("planned_from"):
            yield RecordedPlan(
                line=number,
                uid=output["uid"],
                node=output["node"],
                generation=output["planned_from"]["generation"],
                free=tuple(output["planned_from"]["free"]),
                text=output["annotations"].get(names.PLAN),
            )
