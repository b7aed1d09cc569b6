"""Names that are longer than their place on a screen, cut so that a person tells them apart.

It knows no report. All foreign text passes `topology.printable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["shorten"]


def shorten(names: Sequence[str], width: int) -> list[str]:
    """Cut names of more than `width` characters (at least 1) inside, all at the same place.

    Of all places the one that leaves most of them different, of these the one nearest the middle.
    O(width x names).

    >>> shorten(["gpu-pool-a-node-001", "gpu-pool-a-node-002", "n1"], 9)
    ['gpu-…-001', 'gpu-…-002', 'n1']
    >>> shorten(["ip-10-21-0-136.eu.internal", "ip-10-21-0-104.eu.internal"], 18)
    ['ip-1…6.eu.internal', 'ip-1…4.eu.internal']
    """
    shown = [printable(name) for name in names]
    if all(len(name) <= width for name in shown):
        return shown
    kept = width - 1

    def cut(name: str, head: int) -> str:
        if len(name) <= width:
            return name
        return f"{name[:head]}…{name[len(name) - kept + head :]}"

    def rank(head: int) -> tuple[int, int, int]:
        return -len({cut(name, head) for name in shown}), abs(2 * head - kept), head

    best = min(range(kept + 1), key=rank)
    return [cut(name, best) for name in shown]
