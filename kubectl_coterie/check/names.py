"""Names in a sentence: a few of them, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["listed"]

MOST = 3


def listed(names: Sequence[str], kind: str) -> str:
    """Write the first names, and the number of all where there are more.

    >>> listed(["a"], "node"), listed(["a", "b", "c", "d"], "pod")
    ('node a', '4 pods: a, b, c, ...')
    """
    if len(names) == 1:
        return f"{kind} {names[0]}"
    more = ", ..." if len(names) > MOST else ""
    return f"{len(names)} {kind}s: {', '.join(names[:MOST])}{more}"
