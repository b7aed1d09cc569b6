"""A table of text for a terminal.

What it answers: how cells stand in columns. All programs lay their tables out here, so it lies at
the bottom of the core. It cuts nothing, so that no fact is lost, and it paints nothing: cells may
hold a terminal's colours (`kubectl_coterie.terminal.style`), which take no width. Foreign text
must have passed `topology.printable`.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["NONE", "table"]

NONE = "<none>"
"""A cell without a value, as kubectl prints it."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def table(
    rows: Sequence[Sequence[str | None]],
    header: Sequence[str] = (),
    *,
    right: Collection[int] = (),
    max_widths: Mapping[int, int] | None = None,
    gap: str = "  ",
) -> list[str]:
    r"""Lay rows out as lines without blanks at their ends, below a header if there is one.

    Columns are numbered from 0: those in `right` are aligned right, as figures are; those in
    `max_widths` are wrapped there between words. A cell of several lines makes its row as high;
    None is shown as `NONE`.

    >>> for line in table([("a", "7"), ("b c", None)], ("name", "GPUs"), right={1}):
    ...     print(line)
    name    GPUs
    a          7
    b c   <none>
    """
    texts = [header] if header else []
    texts += [[NONE if cell is None else cell for cell in row] for row in rows]
    limits = max_widths or {}
    grid = [[_lines(cell, limits.get(k)) for k, cell in enumerate(row)] for row in texts]
    columns = zip(*grid, strict=True)
    widths = [max(_width(line) for cell in cells for line in cell) for cells in columns]
    return [
        gap.join(
            _padded(text, width, is_right=k in right)
            for k, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for row in grid
        for line in zip_longest(*row, fillvalue="")
    ]


def _lines(cell: str, limit: int | None) -> list[str]:
    lines = cell.split("\n")
    if limit is not None:
        lines = [part for line in lines for part in wrap(line, limit)]
    return lines or [""]


def _padded(text: str, width: int, *, is_right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if is_right else text + blanks


def _width(text: str) -> int:
    return len(_COLOUR.sub("", text))
