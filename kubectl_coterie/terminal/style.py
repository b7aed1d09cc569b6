"""Colour for terminals: only there, and not where NO_COLOR or `TERM=dumb` forbids it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["Style"]

GOOD_SHARE, FAIR_SHARE = 0.9, 0.5
"""Least shares of the best that are green and yellow: near-best sets count as placeable from 0.9 on
(docs/read-api.md)."""
_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Style:
    """Wraps text in the escape sequences of a terminal (ECMA-48, SGR), or leaves it as it is."""

    def __init__(self, *, is_on: bool) -> None:
        self.is_on = is_on

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """Colour where `stream` is a terminal that takes it (https://no-color.org)."""
        is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return cls(is_on=stream.isatty() and not is_plain)

    def paint(self, text: str, *names: str) -> str:
        """The text in these colours: bold, dim, red, green, yellow, blue, magenta, cyan."""
        if not self.is_on or not names:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"

    def share(self, text: str, share: float | None) -> str:
        """A figure in the colour of its share of the best: green, yellow or red."""
        if share is None:
            return text
        is_good, is_fair = share >= GOOD_SHARE, share >= FAIR_SHARE
        return self.paint(text, "green" if is_good else "yellow" if is_fair else "red")
