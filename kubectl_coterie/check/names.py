"""Names and counts in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["counted", "listed"]

MOST = 3


def counted(n: int, noun: str) -> str:
    """Write a count with its noun.

    >>> counted(1, "node"), counted(3, "node")
    ('1 node', '3 nodes')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(names: Sequence[str], kind: str) -> str:
    """Write the first names, and the number of all where there are more.

    >>> listed(["a"], "node"), listed(["a", "b", "c", "d"], "pod")
    ('node a', '4 pods: a, b, c, ...')
    """
    if len(names) == 1:
        return f"{kind} {names[0]}"
    more = ", ..." if len(names) > MOST else ""
    return f"{len(names)} {kind}s: {', '.join(names[:MOST])}{more}"
