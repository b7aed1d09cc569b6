"""Results as tables: for a terminal, as Markdown and as JSON, with the machine they were made on.

It computes nothing; the date is an argument.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Cell",
    "Environment",
    "ResultTable",
    "read_environment",
    "to_markdown",
    "to_rich",
    "write_results",
]

Cell = str | float | int | None


@dataclass(frozen=True, slots=True)
class ResultTable:
    """One table of results. Floats are shown with `digits` decimals, kept whole in JSON."""

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


_WRITTEN = ("benchmarks/results", "docs/images")
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
        others = (f":(exclude){folder}" for folder in _WRITTEN)
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *others)
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


def to_rich(table: ResultTable) -> RichTable:
    """Draw a table for the terminal."""
    drawn = RichTable(
        title=table.title, caption="\n".join(table.notes) or None, caption_justify="left"
    )
    for i, column in enumerate(table.columns):
        drawn.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in table.rows:
        drawn.add_row(*(_shown(cell, table.digits) for cell in row))
    return drawn


def to_markdown(table: ResultTable) -> str:
    """Write a table as Markdown, notes below it."""
    lines = [
        f"## {table.title}",
        "",
        "| " + " | ".join(table.columns) + " |",
        "|" + "|".join("---" if i == 0 else "---:" for i in range(len(table.columns))) + "|",
    ]
    lines += [
        "| " + " | ".join(_shown(cell, table.digits).replace("|", "\\|") for cell in row) + " |"
        for row in table.rows
    ]
    if table.notes:
        lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join([*lines, ""])


def write_results(
    folder: Path, name: str, tables: Sequence[ResultTable], environment: Environment
) -> tuple[Path, Path]:
    """Write `<name>.json` and `<name>.md` into a folder, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json = folder / f"{name}.json"
    document = {"environment": asdict(environment), "tables": [asdict(table) for table in tables]}
    as_json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    as_markdown = folder / f"{name}.md"
    facts = ", ".join(f"{key} {value}" for key, value in environment.arguments.items())
    head = (
        f"# {name.capitalize()}\n\n"
        f"{environment.date}, commit {environment.commit}, {environment.n_cores} cores of "
        f"{environment.cpu}, Python {environment.python}, numpy {environment.numpy}"
        f"{'; ' + facts if facts else ''}.\n\n"
    )
    as_markdown.write_text(
        head + "\n".join(to_markdown(table) for table in tables), encoding="utf-8"
    )
    return as_json, as_markdown
