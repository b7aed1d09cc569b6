"""What a check finds: its state, what about, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Finding", "Status", "findings_json"]


class Status(Enum):
    """How a check ended; NOT_KNOWN: something that it needs could not be read."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of the table. `todo` is empty where nothing is to be done."""

    check: str
    state: Status
    about: str
    todo: str = ""


def findings_json(findings: Iterable[Finding]) -> list[dict[str, str | None]]:
    """The findings as JSON."""
    return [
        {
            "check": finding.check,
            "state": finding.state.value,
            "about": finding.about,
            "todo": finding.todo or None,
        }
        for finding in findings
    ]
