"""GPU numbers as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ranges"]

_SHORTEST_RANGE = 3


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers, three or more in a row as a range.

    >>> ranges([0, 1, 2, 3, 6, 8, 9])
    '0-3,6,8,9'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) >= _SHORTEST_RANGE else ",".join(map(str, run))
        for run in runs
    )
