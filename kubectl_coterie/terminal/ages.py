"""Durations as kubectl prints them (k8s.io/apimachinery v0.36, util/duration, HumanDuration)."""

from __future__ import annotations

__all__ = ["age"]

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY
_FORMS = (  # below so many seconds: the larger unit, and the smaller one beside it if any
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
    (float("inf"), (_YEAR, "y"), None),
)


def age(seconds: float) -> str:
    """Write a duration; of two units the smaller is left out where the larger says enough.

    >>> [age(s) for s in (-3, 0, 119, 252, 660, 3 * 3600 + 120, 50 * 3600, 9 * 86400)]
    ['0s', '0s', '119s', '4m12s', '11m', '3h2m', '2d2h', '9d']
    """
    s = max(0, int(seconds))
    (large, name), small = next((one, two) for bound, one, two in _FORMS if s < bound)
    left = 0 if small is None else s % large // small[0]
    return f"{s // large}{name}" + (f"{left}{small[1]}" if small and left else "")
