"""Standard output in the form that `-o` names."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import yaml

from kubectl_coterie.terminal.style import Style

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

    from kubectl_coterie.terminal.tables import Table

__all__ = ["Output"]

T = TypeVar("T")


class _Dumper(yaml.SafeDumper):
    """PyYAML's own, for what is a kind of dict too."""


_Dumper.add_multi_representer(dict, _Dumper.represent_dict)


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command prints, and how: `form` is empty for people, or wide, json, yaml, name."""

    form: str = ""
    has_header: bool = True
    stream: TextIO = field(default_factory=lambda: sys.stdout)

    @property
    def style(self) -> Style:
        """Colour of the stream."""
        return Style.of(self.stream)

    @property
    def is_data(self) -> bool:
        """Whether programs read it: JSON or YAML."""
        return self.form in {"json", "yaml"}

    def print(self, text: str) -> None:
        """Print lines."""
        self.stream.write(text if text.endswith("\n") else f"{text}\n")
        self.stream.flush()

    def data(self, value: object) -> None:
        """Print a value as JSON or YAML."""
        if self.form == "yaml":
            self.print(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
        else:
            self.print(json.dumps(value, indent=4, ensure_ascii=False))

    def rows(
        self,
        table: Table[T],
        rows: Sequence[T],
        name: Callable[[T], str],
        *,
        has_header: bool = True,
    ) -> None:
        """Print rows as a table, or the `kind/name` of each."""
        lines: Iterable[str]
        if self.form == "name":
            lines = map(name, rows)
        else:
            has_header = has_header and self.has_header
            lines = table.lines(rows, is_wide=self.form == "wide", has_header=has_header)
        text = "".join(f"{line}\n" for line in lines)
        if text:
            self.print(text)
