"""Cells in columns, as every program shows them."""

from __future__ import annotations

import pytest

from topology.text_table import table

RED = "\x1b[31m7\x1b[0m"


@pytest.mark.parametrize(
    ("rows", "header", "options", "lines"),
    [
        pytest.param([], (), {}, [], id="nothing makes no line"),
        pytest.param([], ("a", "b"), {}, ["a  b"], id="a header alone"),
        pytest.param([("", "b"), ("aa", "")], (), {}, ["    b", "aa"], id="no blanks at line ends"),
        pytest.param([("a", None)], (), {}, ["a  <none>"], id="no value"),
        pytest.param(
            [(RED, "x"), ("10", "y")], ("n",) * 2, {"right": {0}},
            [" n  n", f" {RED}  x", "10  y"],
            id="a colour takes no width",
        ),
        pytest.param(
            [("one two", "a"), ("", "b\nc")], (), {"max_widths": {0: 4}},
            ["one  a", "two", "     b", "     c"],
            id="a wrapped cell and one of two lines make their rows higher",
        ),
        pytest.param([("a", "b")], (), {"gap": "   "}, ["a   b"], id="a wider gap"),
    ],
)  # fmt: skip
def test_a_table(rows, header, options, lines):
    """The lines, one for each row but for cells of several."""
    assert table(rows, header, **options) == lines


def test_rows_of_unlike_length_are_refused():
    """A cell would stand below another column's title."""
    with pytest.raises(ValueError, match="zip"):
        table([("a", "b"), ("c",)])
