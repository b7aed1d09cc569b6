"""Which foreign text may be shown as it is.

What it answers: a name out of a file as text that a terminal, an SVG and a font can take. It must
never let a control character through: a file from outside could otherwise drive the terminal.
"""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Replace control characters, line breaks and lone surrogates by question marks.

    >>> printable("box\x1b[31m")
    'box?[31m'
    """
    return "".join(c if c.isprintable() else "?" for c in text)
