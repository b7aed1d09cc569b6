"""The chart's values with their comments, and as a table of Markdown.

A value's comment is the lines right above its key. A map with keys is a heading for its values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import yaml

from tests.docs.markdown import ROOT
from tests.docs.settings_table import default, table

if TYPE_CHECKING:
    from collections.abc import Iterator

CHART = ROOT / "deploy" / "chart"
_KEY = re.compile(r"^(?P<indent> *)(?P<key>\w[\w-]*):(?: |$)")


@dataclass(frozen=True, slots=True)
class Value:
    """One value: its path (`image.tag`), what the comment says, and its default."""

    path: str
    comment: str
    default: Any


def chart_values() -> list[Value]:
    """Every value of values.yaml, in order; its comment is empty where there is none.

    What is requested of processors and memory is one value, `resources`.
    """
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    defaults = yaml.safe_load(text)
    found = [
        Value(path, comment, reduce(lambda at, key: at[key], path.split("."), defaults))
        for path, comment in _commented(text)
        if ".resources." not in path
    ]
    return [one for one in found if not _is_heading(one)]


def _is_heading(one: Value) -> bool:
    return (
        isinstance(one.default, dict) and bool(one.default) and not one.path.endswith("resources")
    )


def _commented(text: str) -> Iterator[tuple[str, str]]:
    """Each key's path and comment; an empty line ends a comment."""
    keys: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        found = _KEY.match(line)
        if found is not None:
            keys = [*keys[: len(found["indent"]) // 2], found["key"]]
            yield ".".join(keys), " ".join(comment)
        if line.lstrip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
        else:
            comment = []


def values_section() -> str:
    """The section of docs/chart.md: a row for each value, in the file's order."""
    rows = [(f"`{one.path}`", default(one.default), one.comment) for one in chart_values()]
    return f"\n{table(('value', 'default', 'meaning'), rows)}\n"
