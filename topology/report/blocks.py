"""What reports are laid out in for people: lines of text and tables.

What it answers: how blocks look as plain text. It computes nothing and knows no terminal. Tables
are never cut to a width: a column left out would be a lost fact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from topology.text_table import table

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Block", "Grid", "NoteLine", "block_text"]


@dataclass(frozen=True, slots=True)
class NoteLine:
    """A line of text; `is_heading` stands out."""

    text: str
    is_heading: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: every row has a cell for each column; empty headings make a list of facts."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right_aligned: frozenset[int] = frozenset()


Block: TypeAlias = NoteLine | Grid


def block_text(blocks: Sequence[Block]) -> str:
    """Write the blocks, an empty line before each heading."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, NoteLine):
            lines += [""] * (block.is_heading and bool(lines))
            lines.append(block.text.rstrip())
        else:
            header = block.columns if any(block.columns) else ()
            lines += table(block.rows, header, right=block.right_aligned)
    return "".join(f"{line}\n" for line in lines)
