"""Results as tables in Markdown, with the machine that they were made on.

It computes nothing; the date is an argument.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from topology.text_table import table

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Cell",
    "Environment",
    "ResultTable",
    "read_environment",
    "to_markdown",
    "to_text",
    "write_results",
]

Cell = str | float | int | None


@dataclass(frozen=True, slots=True)
class ResultTable:
    """One table of results. Floats are shown with `digits` decimals."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    digits: int = 3


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and when results were made."""

    date: str
    commit: str
    cpu: str
    n_cores: int
    python: str
    numpy: str
    arguments: dict[str, str] = field(default_factory=dict)


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2] for line in text.splitlines() if line.startswith("model name")]
    return names[0].strip() if names else platform.machine()


_WRITTEN = "benchmarks/results"
"""What a run writes itself: the next one measures the same code."""


def _commit() -> str:
    """The commit of this checkout, with `-dirty` where a file that is no result differs from it."""
    root = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - fixed words
        return done.stdout.strip()

    try:
        commit = git("describe", "--always", "--abbrev=12")
        others = f":(exclude){_WRITTEN}"
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", others)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


def read_environment(date: str, arguments: dict[str, str]) -> Environment:
    """Read what this process runs on; `date` comes from the caller's clock."""
    return Environment(
        date=date,
        commit=_commit(),
        cpu=_cpu_model(),
        n_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
        python=platform.python_version(),
        numpy=np.__version__,
        arguments=arguments,
    )


def _shown(cell: Cell, digits: int) -> str:
    if cell is None:
        return "-"
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


def to_text(result: ResultTable) -> str:
    """Lay a table out for a terminal, notes below it."""
    rows = [[_shown(cell, result.digits) for cell in row] for row in result.rows]
    lines = table(rows, result.columns, right=range(1, len(result.columns)))
    return "\n".join([result.title, "", *lines, "", *result.notes, ""])


def to_markdown(result: ResultTable) -> str:
    """Write a table as Markdown, notes below it."""
    lines = [
        f"## {result.title}",
        "",
        "| " + " | ".join(result.columns) + " |",
        "|" + "|".join("---" if i == 0 else "---:" for i in range(len(result.columns))) + "|",
    ]
    lines += [
        "| " + " | ".join(_shown(cell, result.digits).replace("|", "\\|") for cell in row) + " |"
        for row in result.rows
    ]
    if result.notes:
        lines += ["", *(f"- {note}" for note in result.notes)]
    return "\n".join([*lines, ""])


def write_results(
    path: Path, command: str, tables: Sequence[ResultTable], environment: Environment
) -> None:
    """Write tables below the command that made them into a file, with the folders above it."""
    facts = ", ".join(f"{key} {value}" for key, value in environment.arguments.items())
    head = (
        f"# {path.stem.capitalize()}\n\n"
        f"`{command}`: {environment.date}, commit {environment.commit}, "
        f"{environment.n_cores} cores of {environment.cpu}, Python {environment.python}, "
        f"numpy {environment.numpy}{'; ' + facts if facts else ''}.\n\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + "\n".join(map(to_markdown, tables)), encoding="utf-8")
