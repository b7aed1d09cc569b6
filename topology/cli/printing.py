"""A report as text: JSON for programs, tables for people."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING

from topology.report.listing import NoteLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from topology.audit import AuditReport
    from topology.report.group_values import GroupReport
    from topology.report.listing import Block, Grid
    from topology.report.values import (
        BestReport,
        RankReport,
        RecordingsReport,
        ShowReport,
        ValueReport,
    )

    Report = (
        ShowReport
        | ValueReport
        | GroupReport
        | BestReport
        | RankReport
        | RecordingsReport
        | AuditReport
    )

__all__ = ["json_report", "screen_width", "table_report"]


def screen_width(stream: TextIO, otherwise: int) -> int:
    """Columns of the terminal that a stream is, `otherwise` where it is none or does not say."""
    if not stream.isatty():
        return otherwise
    return shutil.get_terminal_size((otherwise, 0)).columns


def json_report(report: Report) -> str:
    """Write a report as one JSON object."""
    return json.dumps(asdict(report), indent=2) + "\n"


def table_report(blocks: Sequence[Block]) -> str:
    """Write the blocks that lay a report out; an empty line stands before each heading.

    Tables are never cut to the terminal's width: a column left out would be a lost fact.
    """
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, NoteLine):
            lines += [""] * (block.is_heading and bool(lines))
            lines.append(block.text)
        else:
            lines += _rows(block)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _rows(grid: Grid) -> Iterator[str]:
    """Pad every column to its longest cell, with two blanks between columns."""
    rows = [*([grid.columns] if any(grid.columns) else []), *grid.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            cell.rjust(width) if k in grid.right_aligned else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
