"""What a run of NCCL's all_reduce_perf says about the GPUs that it ran on.

The table of nccl-tests has one row for each message size under a header that names the columns:
`size count type redop root time algbw busbw #wrong`, the last four twice, out of place and in place
(nccl-tests, src/common.cu; before 2.11 there is no `root`, and `error` stands for `#wrong`). Only
the header identifies the columns. The figure taken is the out-of-place one, in GB/s (1e9), of
the largest size. NCCL prints its version as `NCCL version 2.21.5+cuda12.4` (NCCL_DEBUG=VERSION).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from plugin.errors import MeasurementError
from topology.errors import quote

__all__ = ["BusBandwidth", "read_all_reduce"]

_VERSION = re.compile(r"NCCL version ([0-9][0-9A-Za-z.+-]*)")


@dataclass(frozen=True, slots=True)
class BusBandwidth:
    """One figure; `nccl_version` is None where the run did not print it."""

    message_bytes: int
    gbytes_per_s: float
    nccl_version: str | None


def read_all_reduce(text: str) -> BusBandwidth:
    r"""Read the output of a run.

    Raises `MeasurementError` where there is no row, a row that cannot be read, or a wrong result.

    >>> read_all_reduce(
    ...     "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
    ...     "1073741824 268435456 float sum -1 5503.4 195.10 195.10 0\n"
    ... )
    BusBandwidth(message_bytes=1073741824, gbytes_per_s=195.1, nccl_version=None)
    """
    columns: list[str] = []
    best: tuple[int, float] | None = None
    for line in text.splitlines():
        cells = line.split()
        named = [cell for cell in cells if cell != "#"]
        if "busbw" in named and "size" in named:
            columns = named
        elif columns and cells and cells[0].isdecimal() and len(cells) == len(columns):
            found = _row(dict(zip(reversed(columns), reversed(cells), strict=True)), line)
            best = found if best is None else max(best, found)
    if best is None:
        msg = (
            f"benchmark's output ends with {quote(_last_line(text))}, "
            "expected the table of nccl-tests: a header with size and busbw, and a row"
        )
        raise MeasurementError(msg)
    version = _VERSION.search(text)
    return BusBandwidth(*best, None if version is None else version.group(1))


def _row(cells: dict[str, str], line: str) -> tuple[int, float]:
    # Read from the right, the names that occur twice keep their first column: out of place.
    wrong = cells.get("#wrong", "0")
    if wrong not in {"0", "N/A"}:
        msg = f"benchmark's row {quote(line.strip())}: {wrong} wrong results, expected none"
        raise MeasurementError(msg)
    try:
        return int(cells["size"]), float(cells["busbw"])
    except ValueError as error:
        msg = f"benchmark's row {quote(line.strip())}: expected bytes under size, GB/s under busbw"
        raise MeasurementError(msg) from error


def _last_line(text: str) -> str:
    """The last line that is not empty."""
    lines = text.split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else ""
