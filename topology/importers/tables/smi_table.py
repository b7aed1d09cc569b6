"""Finds the link matrices that `nvidia-smi topo` printed into a text.

What it answers: which matrices a text holds, each as labels and raw cells, with the lines about
it (the legend). It must never judge what a label means for a pair
(`topology.importers.tables.label_matrix`), and never fill a gap: a row that is short stays short.

Method: a header is a line with a run of names GPU0 GPU1 ..., then names of NICs, then affinity
columns. A row is a line with the name of a GPU or NIC of the header and a label behind it; what
stands before (log prefixes, comment marks) is skipped, and so are lines between that are neither.
A header or row that a mail program or terminal broke goes on in the next line. Cells are never
empty, so they are distinguished by blanks. Affinity columns may be empty: if a row has as many as
the header they go in order, else by tabs, else by the column where they start, else they are
unknown. Everything is linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError, quote
from topology.importers.tables.cells import parse_cell
from topology.importers.tables.smi_text import TextLine, split_lines
from topology.model import MAX_GPUS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SmiRow", "SmiTable", "find_tables"]

P2P_LABELS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
"""Cells of `nvidia-smi topo -p2p` (its own legend, driver 570)."""

MAX_MATRICES = 1000
"""Most matrices in one text: above a log of all nodes of a large job, below a burden."""

_GPU = re.compile(r"GPU\d{1,4}")
_HEADER_HINT = re.compile(r"GPU\d")
_NIC = re.compile(r"(?=[\w.:-]*\d)[A-Za-z][\w.:-]{1,47}")
_AFFINITY = re.compile(r"CPU Affinity|NUMA Affinity|Node Affinity|GPU NUMA ID|NUMA")
_NUMA_COLUMNS = frozenset({"NUMA Affinity", "Node Affinity", "NUMA"})
_AFFINITY_STARTS = frozenset({"CPU", "NUMA", "Node", "GPU"})
_AFFINITY_WORDS = _AFFINITY_STARTS | {"Affinity", "ID"}
_CUT_CELL = re.compile(r"(?:P|PI|PX|PH|N|NO|NOD|S|SY|SO)(?=\d)[\d,-]+")
"""A label that lost its end to the column behind it: `PH0-31` of `PHB` and `0-31`."""
_BROKEN_OFF = re.compile(r"(?:GPU|NIC|mlx)\d[\w.:-]*")


@dataclass(frozen=True, slots=True)
class NumaColumn:
    """Where the NUMA affinity stands: `place` counts among the affinity columns.

    `start` is the heading's column in the text, `fields` are the tab-separated headings before
    it; -1 and () where a broken header does not show it.
    """

    place: int
    start: int
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SmiHeader:
    """The columns of a matrix; `numa` is None where there is not exactly one such column."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    names: frozenset[str]
    n_affinity: int
    numa: NumaColumn | None

    @property
    def n_columns(self) -> int:
        """GPUs and NICs together."""
        return len(self.gpus) + len(self.nics)


@dataclass(frozen=True, slots=True)
class SmiRow:
    """A device's row as printed: labels in column order, and its NUMA affinity ("" if none).

    `fault` says where the line goes on as no row should; "" where it ends well or is cut off.
    """

    name: str
    labels: tuple[str, ...]
    numa: str
    fault: str


@dataclass(frozen=True, slots=True)
class SmiTable:
    """One matrix: columns, rows by name in order of appearance, and the lines around it."""

    header: SmiHeader
    rows: dict[str, SmiRow] = field(default_factory=dict[str, SmiRow])
    lines: list[str] = field(default_factory=list[str])

    @property
    def is_p2p(self) -> bool:
        """Whether the cells are those of `topo -p2p`: access, not links."""
        labels = {label for row in self.rows.values() for label in row.labels}
        return bool(labels & P2P_LABELS) and labels <= P2P_LABELS | {"X"}


def find_tables(text: str) -> tuple[SmiTable, ...]:
    """Every matrix of the text that has at least one row, in order; linear in its length.

    Raises `ImportFormatError` where one matrix holds two different rows of one name, a row whose
    GPU has no column, or a row with cells that are no labels.
    """
    if not _HEADER_HINT.search(text):
        return ()
    tables: list[SmiTable] = []
    before: list[str] = []
    lines = split_lines(text)
    position = 0
    while position < len(lines):
        header, used = _read_header(lines, position)
        if header is not None and not (tables and _is_inside(tables[-1], header)):
            if tables and not tables[-1].rows:
                before = tables.pop().lines
            _check_count(tables)
            tables.append(SmiTable(header, lines=before))
            before = []
        elif tables:
            row, used = _read_row(tables[-1].header, lines, position)
            if row is not None:
                _add_row(tables[-1], row)
        about = tables[-1].lines if tables else before
        about += [line.text for line in lines[position : position + used]]
        position += used
    return tuple(table for table in tables if table.rows)


def _check_count(tables: Sequence[SmiTable]) -> None:
    if len(tables) >= MAX_MATRICES:
        msg = f"the text holds more than {MAX_MATRICES} matrices, expected those of one machine"
        raise ImportFormatError(msg)


def _is_inside(table: SmiTable, header: SmiHeader) -> bool:
    """Whether what looks like a header is only a line about some GPUs between a matrix's rows."""
    is_part = len(header.gpus) < len(table.header.gpus) and table.header.names.issuperset(
        header.gpus
    )
    return is_part and len(table.rows) < len(table.header.gpus)


def _add_row(table: SmiTable, row: SmiRow) -> None:
    known = table.rows.get(row.name)
    n_expected = len(table.header.gpus) if known is None else len(known.labels)
    is_column = row.name in table.header.names
    if len(row.labels) < n_expected and (known is not None or not is_column):
        return  # "GPU0 PIX ..." in the text below the matrix
    if not is_column:
        msg = f"row {row.name} has no column {row.name}: the header is cut off"
        raise ImportFormatError(msg)
    if row.fault:
        raise ImportFormatError(row.fault)
    if known is not None and known.labels != row.labels:
        msg = f"row {row.name} stands there twice with different cells, expected one matrix"
        raise ImportFormatError(msg)
    table.rows[row.name] = row


def _read_header(lines: Sequence[TextLine], position: int) -> tuple[SmiHeader | None, int]:
    """A header that starts at `position`, and the count of lines it takes (1 where it is none)."""
    line = lines[position]
    first = next((i for i, token in enumerate(line.tokens) if _GPU.fullmatch(token)), None)
    if first is None:
        return None, 1
    if line.tokens[first + 1 : first + 2] == line.tokens[first : first + 1]:
        first += 1  # some converters to markdown write the first name into the corner, too
    names = _device_names(line.tokens[first:])
    if names is None:
        return None, 1
    used = 1
    while len(line.tokens) == first + len(names) and position + used < len(lines):
        more = _device_names(lines[position + used].tokens)
        if not more or not _BROKEN_OFF.fullmatch(more[0]) or not set(names).isdisjoint(more):
            break
        names += more
        _check_width(names)
        line = lines[position + used]
        first = len(line.tokens) - len(names)
        used += 1
    _check_width(names)
    affinity = list(_AFFINITY.finditer(line.text))
    header = SmiHeader(
        gpus=tuple(name for name in names if _GPU.fullmatch(name)),
        nics=tuple(name for name in names if not _GPU.fullmatch(name)),
        names=frozenset(names),
        n_affinity=len(affinity),
        numa=_numa_column(line, affinity, line.starts[first] if used == 1 else None),
    )
    return header, used


def _check_width(names: Sequence[str]) -> None:
    n_gpus = sum(_GPU.fullmatch(name) is not None for name in names)
    for kind, n in (("GPU", n_gpus), ("NIC", len(names) - n_gpus)):
        if n > MAX_GPUS:
            msg = f"the matrix has {n} {kind} columns, expected at most {MAX_GPUS}"
            raise ImportFormatError(msg)


def _numa_column(
    line: TextLine, affinity: Sequence[re.Match[str]], first_cell: int | None
) -> NumaColumn | None:
    places = [place for place, match in enumerate(affinity) if match[0] in _NUMA_COLUMNS]
    if len(places) != 1:
        return None
    if first_cell is None:
        return NumaColumn(places[0], -1, ())
    start = affinity[places[0]].start()
    return NumaColumn(places[0], start, tuple(line.fields_between(first_cell, start)))


def _device_names(tokens: Sequence[str]) -> list[str] | None:
    """GPU and NIC names up to the affinity columns; None where the tokens are no header."""
    names: list[str] = []
    for position, token in enumerate(tokens):
        if token in _AFFINITY_STARTS:
            return names if _AFFINITY_WORDS.issuperset(tokens[position:]) else None
        is_gpu = _GPU.fullmatch(token) is not None
        if _is_label(token) or not (is_gpu or _NIC.fullmatch(token)):
            return None
        if is_gpu and names and not _GPU.fullmatch(names[-1]):
            return None
        names.append(token)
    return names


def _read_row(
    header: SmiHeader, lines: Sequence[TextLine], position: int
) -> tuple[SmiRow | None, int]:
    """A row that starts at `position`, and the count of lines it takes (1 where it is none)."""
    line = lines[position]
    place = _row_place(header, line)
    if place is None:
        return None, 1
    name = line.tokens[place]
    first = tail = place + 1
    labels = _leading_labels(line.tokens[first:], header.n_columns)
    tail += len(labels)
    used = 1
    while tail == len(line.tokens) and len(labels) < header.n_columns:
        following = lines[position + used : position + used + 1]
        more = (
            _leading_labels(following[0].tokens, header.n_columns - len(labels))
            if following
            else ()
        )
        if not more:
            break
        labels += more
        line, first, tail = following[0], 0, len(more)
        used += 1
    values = line.tokens[tail:]
    fault = _find_fault(header, name, labels, values) if _GPU.fullmatch(name) else ""
    numa = _numa_affinity(header, line, labels, first, tail) if values else ""
    return SmiRow(name, labels, numa, fault), used


def _row_place(header: SmiHeader, line: TextLine) -> int | None:
    """Where a row's name stands: a label follows, at the latest as the second token."""
    for i, token in enumerate(line.tokens[:-1]):
        if (token in header.names or _GPU.fullmatch(token)) and any(
            _is_label(label) for label in line.tokens[i + 1 : i + 3]
        ):
            return i
    return None


def _is_label(token: str) -> bool:
    return token in P2P_LABELS or parse_cell(token) is not None


def _leading_labels(tokens: Sequence[str], limit: int) -> tuple[str, ...]:
    end = 0
    while end < min(limit, len(tokens)) and _is_label(tokens[end]):
        end += 1
    return tuple(tokens[:end])


def _find_fault(header: SmiHeader, name: str, labels: Sequence[str], values: Sequence[str]) -> str:
    """Where a GPU row goes on as it should not; "" for one that ends well or is merely short."""
    if len(labels) == header.n_columns:
        has_more = values and _is_label(values[0])
        more = f"row {name} has more cells than the header has columns ({header.n_columns})"
        return more if has_more else ""
    is_gpu_part_whole = len(labels) >= len(header.gpus) and not any(map(_is_label, values))
    is_short = len(labels) == len(header.gpus)
    if not values or (is_gpu_part_whole and (is_short or _CUT_CELL.fullmatch(values[0]))):
        return ""
    column = (*header.gpus, *header.nics)[len(labels)]
    return f"row {name}, column {column} is {quote(values[0])}, expected a label as X or PIX"


def _numa_affinity(
    header: SmiHeader, line: TextLine, labels: tuple[str, ...], first: int, tail: int
) -> str:
    """The row's NUMA affinity, "" where the column is missing, empty or ambiguous."""
    column = header.numa
    values = line.tokens[tail:]
    if column is None or _CUT_CELL.fullmatch(values[0]):
        return ""
    if len(values) == header.n_affinity:
        return values[column.place]
    if "\t" not in line.text:
        return dict(zip(line.starts[tail:], values, strict=True)).get(column.start, "")
    fields = line.fields_between(line.starts[first], len(line.text))
    names = (*header.gpus, *header.nics)
    if column.fields[: len(names)] != names or tuple(fields[: len(labels)]) != labels:
        return ""
    return "".join(fields[len(column.fields) : len(column.fields) + 1])
