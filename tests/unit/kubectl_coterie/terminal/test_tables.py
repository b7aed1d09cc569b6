"""Tables, sorting, and standard output in each form."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from kubectl_coterie.errors import CliError
from kubectl_coterie.terminal import Column, Output, Style, Table

ROWS = [{"name": "b", "n": 10}, {"name": "a\x1b[31m", "n": None}, {"name": "c", "n": 9}]


def table(style=None):
    """Two columns and a wide one."""
    number: Column[Any] = Column(
        "N OF",
        lambda row: None if row["n"] is None else str(row["n"]),
        key=lambda row: row["n"],
        paint=None if style is None else lambda _, text: style.paint(text, "red"),
    )
    return Table(
        (
            Column("NAME", lambda row: row["name"]),
            number,
            Column("WIDE", lambda _: "w", is_wide=True),
        )
    )


def test_a_table():
    """Three blanks, `<none>` for what is unknown, and no name that drives the terminal."""
    assert table().lines(ROWS) == [
        "NAME     N OF",
        "b        10",
        "a?[31m   <none>",
        "c        9",
    ]
    assert table().lines([], has_header=False) == []
    assert table().lines(ROWS[:1], is_wide=True, has_header=False) == ["b   10   w"]


def test_colour_takes_no_room():
    """Columns stay in line."""
    lines = table(Style(is_on=True)).lines(ROWS[:1], is_wide=True)
    assert lines == ["NAME   N OF   WIDE", "b      \x1b[31m10\x1b[0m     w"]


@pytest.mark.parametrize("by", ["n-of", "N OF", "{.n_of}", ".N-OF"])
def test_sorting_by_a_column(by):
    """As a number, unknown values last; the column is named as people type it."""
    assert [row["n"] for row in table().sorted(ROWS, by)] == [9, 10, None]
    assert table().sorted(ROWS, None) == ROWS
    assert [row["name"][0] for row in table().sorted(ROWS, "name")] == ["a", "b", "c"]


def test_sorting_by_no_column(check_message):
    """The sentence has those that there are."""
    with pytest.raises(CliError) as caught:
        table().sorted(ROWS, "age")
    check_message(caught.value)


def shown(form, rows=ROWS, **options):
    """What is written."""
    stream = io.StringIO()
    output = Output(form=form, stream=stream, **options)
    output.rows(table(), rows, lambda row: f"row/{row['name'][0]}")
    return stream.getvalue()


def test_rows_in_each_form():
    """Nothing at all of no rows without a header."""
    assert shown("name") == "row/b\nrow/a\nrow/c\n"
    assert shown("", ROWS[:1]) == "NAME   N OF\nb      10\n"
    assert shown("wide", ROWS[:1], has_header=False) == "b   10   w\n"
    assert shown("", [], has_header=False) == ""


@pytest.mark.parametrize(
    ("form", "text"),
    [("json", '{\n    "a": "é"\n}\n'), ("yaml", "a: é\n")],
)
def test_data(form, text):
    """For programs; not escaped, since people read it too."""
    stream = io.StringIO()
    output = Output(form=form, stream=stream)
    assert output.is_data
    output.data({"a": "é"})
    assert stream.getvalue() == text
    assert not Output(form="wide").is_data


def test_lines_end_once(capsys):
    """By default on standard output, as it is at that moment."""
    Output().print("a")
    Output().print("b\n")
    Output().data({})
    assert capsys.readouterr().out == f"a\nb\n{json.dumps({})}\n"
