"""Rows of a recorded trace: a CSV file with a header, outside of the repository.

What a column means is known where it is read.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from benchmarks.errors import BadData, MissingData

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["read_rows"]


def read_rows(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The rows, which have these columns.

    Raises `MissingData` where the file cannot be read, `BadData` where a column is missing.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = set(columns) - set(reader.fieldnames or ())
            if missing:
                msg = f"{path}: columns {sorted(missing)} are missing"
                raise BadData(msg)
            yield from reader
    except OSError as error:
        msg = f"trace: {path} cannot be read; name the folder with --shared"
        raise MissingData(msg) from error
