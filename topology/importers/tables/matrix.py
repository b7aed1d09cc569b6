"""Reads a plain square matrix of link labels: the format for what no tool prints.

What it answers: the topology written by hand or exported from a spreadsheet. It
must never read more into a cell than it says.

Format: one line per GPU, cells split by comma, semicolon, or else by blanks; empty lines and
what follows a `#` are skipped. A first line that is no row names the GPUs; then, or where a row has
one cell too many, each row starts with a name. Cells are labels as nvidia-smi prints them (NV4, MX,
PIX ... SYS), `X` or `0` on the diagonal, `?` for unknown, and `NV4/PXB` where both link and PCIe
level are known, with `NV0/PXB` for "no link". A matrix without any link label says
nothing about links, exactly as `topo -mp`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from topology.errors import ImportFormatError, quote
from topology.importers.tables.cells import EXPECTED_CELLS, SELF, Cell, parse_cell
from topology.importers.tables.label_matrix import build_matrices
from topology.model import MAX_GPUS, Gpu, NodeTopology

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["import_matrix", "looks_like_matrix"]

_BLANKS = re.compile(r"\s+")


def import_matrix(text: str, *, gpu_model: str | None = None) -> NodeTopology:
    r"""Read the matrix; `gpu_model` names all its GPUs.

    Raises `ImportFormatError` where it is not square or a cell is no label.

    >>> import_matrix("X, NV2/PIX\nNV2/PIX, X").pcie[0][1]
    <PcieLevel.PIX: 'PIX'>
    """
    rows = _split(text)
    has_header = bool(rows) and all(_cell(name) is None for name in rows[0])
    names = rows.pop(0) if has_header else ()
    n = len(rows)
    if not 1 <= n <= MAX_GPUS:
        msg = f"the matrix has {n} rows, expected 1..{MAX_GPUS}: one per GPU"
        raise ImportFormatError(msg)
    if has_header and len(names) not in {n, n + 1}:
        msg = f"the header has {len(names)} names, expected {n}: one per row"
        raise ImportFormatError(msg)
    labels = names[-n:] or tuple(f"GPU{i}" for i in range(n))
    cells = [_read_row(row, place, labels, has_header) for place, row in enumerate(rows)]
    matrices = build_matrices(labels, cells, models=[gpu_model] * n, shows_links=False)
    return NodeTopology(
        gpus=(Gpu(model=gpu_model),) * n,
        links=matrices.links,
        pcie=matrices.pcie,
        fabrics=matrices.fabrics,
    )


def looks_like_matrix(text: str) -> bool:
    """Whether the first or second line of data is a row of labels."""
    return any(_is_row(row) for row in _split(text)[:2])


def _split(text: str) -> list[tuple[str, ...]]:
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    separator = next((mark for mark in ",;" if lines and mark in lines[0]), None)
    return [
        tuple(
            cell.strip().strip("\"'")
            for cell in (_BLANKS.split(line) if separator is None else line.split(separator))
        )
        for line in lines
    ]


def _cell(label: str) -> Cell | None:
    return SELF if label == "0" else parse_cell(label)


def _is_row(row: Sequence[str]) -> bool:
    """All labels, or all but the name at the start."""
    cells = row[1:] or row
    return all(_cell(label) is not None for label in cells)


def _read_row(
    row: tuple[str, ...],
    place: int,
    labels: Sequence[str],
    has_header: bool,
) -> list[Cell]:
    n = len(labels)
    if len(row) == n + 1 and _cell(row[0]) is None:
        if has_header and row[0] != labels[place]:
            msg = f"row {place} is named {quote(row[0])}, expected {labels[place]} as in the header"
            raise ImportFormatError(msg)
        row = row[1:]
    if len(row) != n:
        msg = f"row {labels[place]} has {len(row)} cells, expected {n}: one per GPU"
        raise ImportFormatError(msg)
    cells: list[Cell] = []
    for column, label in enumerate(row):
        cell = _cell(label)
        if cell is None:
            msg = (
                f"row {labels[place]}, column {labels[column]} is {quote(label)}, "
                f"expected {EXPECTED_CELLS} or ?"
            )
            raise ImportFormatError(msg)
        cells.append(cell)
    return cells
