"""Tables as kubectl prints them: capitals, three blanks between columns, no lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from kubectl_coterie.errors import CliError
from topology.errors import quote
from topology.printable import printable
from topology.text_table import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Column", "Table"]

T = TypeVar("T")

_GAP = "   "


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column: `text` of a row, `key` to sort by where that is no text, colour of its cells.

    `is_wide` columns are shown by `-o wide` alone.
    """

    title: str
    text: Callable[[T], str | None]
    key: Callable[[T], float | str | None] | None = None
    paint: Callable[[T, str], str] | None = None
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """Columns of rows of one kind."""

    columns: Sequence[Column[T]]
    gap: str = field(default=_GAP)

    def sorted(self, rows: Iterable[T], by: str | None) -> list[T]:
        """The rows by a column, upwards; unknown values last. None: as they are.

        Raises `CliError` for a column that is not there.
        """
        kept = list(rows)
        if by is None:
            return kept
        wanted = _field(by)
        column = next((one for one in self.columns if _field(one.title) == wanted), None)
        if column is None:
            known = ", ".join(_field(one.title) for one in self.columns)
            msg = f"--sort-by is {quote(by)}, expected one of {known}"
            raise CliError(msg)
        key = column.key or column.text
        known_rows = [row for row in kept if key(row) is not None]
        known_rows.sort(key=key)  # type: ignore[arg-type]  # no key is None here
        return known_rows + [row for row in kept if key(row) is None]

    def lines(
        self, rows: Sequence[T], *, is_wide: bool = False, has_header: bool = True
    ) -> list[str]:
        """The lines, header first."""
        columns = [one for one in self.columns if is_wide or not one.is_wide]
        header = [one.title for one in columns] if has_header else []
        cells = [[_cell(one, row) for one in columns] for row in rows]
        return table(cells, header, gap=self.gap)


def _cell(column: Column[T], row: T) -> str | None:
    found = column.text(row)
    if found is None:
        return None
    text = printable(found)
    return text if column.paint is None else column.paint(row, text)


def _field(name: str) -> str:
    """A column's name as people type it: `{.free}`, `.free`, `FREE` and `free` are one."""
    return name.strip("{}").lstrip(".").lower().replace(" ", "-").replace("_", "-")
