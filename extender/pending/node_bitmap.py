"""Small numbers of nodes, so that sets of them are masks.

A cluster has thousands of nodes, and each unschedulable pod a set of them: as masks these cost a
bit for each node, and are joined and compared at once. Numbers are never reused: the owner of the
masks replaces the whole numbering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NodeNumbers"]


class NodeNumbers:
    """Numbers of one run, given in the order in which names first appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def mask(self, names: Iterable[str]) -> int:
        """The mask of some nodes; a new name gets the next number."""
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in names]
        if len(self._names) < len(self._numbers):
            self._names = list(self._numbers)
        bits = np.zeros(len(self._names), dtype=np.uint8)
        bits[numbers] = 1
        return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")

    def latest(self, mask: int, *, at_most: int) -> list[str]:
        """The names in a mask, those numbered last, in the order of their numbers."""
        found: list[str] = []
        while mask and len(found) < at_most:
            number = mask.bit_length() - 1
            mask ^= 1 << number
            found.append(self._names[number])
        return found[::-1]
