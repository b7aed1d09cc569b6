"""A report on standard output: JSON for programs, tables for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from topology.report.listing import NoteLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.report.listing import Block, Grid
    from topology.report.values import (
        BestReport,
        RankReport,
        RecordingsReport,
        ShowReport,
        ValueReport,
    )

    Report = ShowReport | ValueReport | BestReport | RankReport | RecordingsReport

__all__ = ["print_report"]

MAX_COLUMNS = 10_000
"""Wider than any table: 512 GPUs with their NICs."""


def print_report(report: Report, blocks: Sequence[Block], *, as_json: bool) -> None:
    """Print a report, or the `blocks` that lay it out."""
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
        return
    # Tables are never cut to the terminal's width (rich assumes 80 columns in a pipe): a column
    # left out would be a lost fact. The terminal wraps what it cannot hold.
    console = Console(width=MAX_COLUMNS, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        for k, block in enumerate(blocks):
            if isinstance(block, NoteLine):
                style = "bold" if block.is_heading else ""
                lead = "\n" if block.is_heading and k else ""
                console.print(Text(lead + block.text, style=style))
            else:
                console.print(_table(block))
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def _table(grid: Grid) -> Table:
    table = Table(box=None, show_header=any(grid.columns), pad_edge=False, header_style="dim")
    for k, heading in enumerate(grid.columns):
        table.add_column(heading, justify="right" if k in grid.right_aligned else "left")
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
