r"""Lines of a log, mail or web page become plain tokens.

What it answers: what remains of each line once terminal colours, quoting and table borders are
taken off. It never looks at what a token means (`topology.importers.tables.smi_table` does).

Taken off: ANSI sequences, also where the escape byte was written as caret text or got lost
(`^[[4m`, `[4m`); borders of markdown and box-drawn tables; quotes, comment and mail marks
stuck to a token. A string literal with written-out breaks is spread into lines, and so are the
elements of a list, as in JSON or in Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["TextLine", "split_lines"]

_ANSI = re.compile(
    r"(?:\x1b|\^\[|\\x1b|\\u001b|\\033|\\e)\[[0-9;?]{0,16}[A-Za-z]|\x1b\(B|\[[0-9;]{0,16}m"
)
_LITERAL_BREAK = re.compile(r"\\[tn]GPU\d")
_LIST_BREAK = re.compile(r"""\[\s*["']|["']\s*,\s*["']|["']\s*\]""")
"""Begin, middle and end of a list of strings."""
_BORDERS = str.maketrans(dict.fromkeys("|│┃║", "\t"))
_STUCK = "\"'`>#*+"
_WORD = re.compile(r"\S+")
_LITERALS = frozenset("{[")
"""How JSON and Python's lists and dicts begin."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line: its tokens with the columns where they start, and its tab-separated fields."""

    text: str
    tokens: tuple[str, ...]
    starts: tuple[int, ...]

    def fields_between(self, start: int, end: int) -> list[str]:
        """Tab-separated fields from column `start` to before `end`, stripped, empty ones kept.

        Where `end` begins a field, that field is left out.
        """
        part = self.text[start:end]
        fields = [field.strip() for field in part.split("\t")]
        return fields[:-1] if part.endswith("\t") else fields


_EMPTY = TextLine("", (), ())


def split_lines(text: str) -> tuple[TextLine, ...]:
    r"""Split text into cleaned lines; linear in its length.

    >>> split_lines("# \x1b[4mGPU0 | PIX")[0].tokens
    ('GPU0', 'PIX')
    """
    text = _ANSI.sub("", text)
    if _LITERAL_BREAK.search(text):
        text = text.replace("\\t", "\t").replace("\\r", "\r").replace("\\n", "\n")
    if text.lstrip()[:1] in _LITERALS:
        text = _LIST_BREAK.sub("\n", text)
    return tuple(_clean(line) for line in text.splitlines())


def _clean(line: str) -> TextLine:
    if not line:
        return _EMPTY
    plain = line.translate(_BORDERS)
    found = [(match.start(), match[0].strip(_STUCK)) for match in _WORD.finditer(plain)]
    kept = [(start, token) for start, token in found if token]
    return TextLine(
        text=plain,
        tokens=tuple(token for _, token in kept),
        starts=tuple(start for start, _ in kept),
    )
