"""Kubernetes quantities, exactly: `4`, `"4k"`, `"500m"`, `"1e3"`, `".5k"`, `"1Gi"`.

Returns the number that a quantity means, without rounding. The grammar is apimachinery's (v0.36.3,
pkg/api/resource/quantity.go `parseQuantityString`, suffix.go).
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

__all__ = ["parse_quantity", "parse_whole"]

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))"
    r"(?:[eE]([+-]?[0-9]{1,3})|([a-zA-Z]{1,2}))?"
)
_SUFFIXES = {
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", 1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}

_KINDS = (str, int, float)


def parse_quantity(quantity: object) -> Fraction | None:
    """Read a quantity, a JSON string or number; None where it is none.

    Sizes are bounded (30 digits, three of an exponent), so that no text takes time without bound.

    >>> parse_quantity("1500m")
    Fraction(3, 2)
    >>> parse_quantity("4 GPUs") is None
    True
    """
    return _parse(str(quantity)) if isinstance(quantity, _KINDS) else None


def parse_whole(quantity: object) -> int | None:
    """Read a quantity that counts devices: None where it is none, or not a whole number >= 0.

    >>> parse_whole("4k"), parse_whole(".5k"), parse_whole("500m"), parse_whole("-1")
    (4000, 500, None, None)
    """
    return _whole(str(quantity)) if isinstance(quantity, _KINDS) else None


# Few texts come up again and again, several in each pod: read, they take 30 times as long.
@lru_cache(maxsize=1024)
def _whole(text: str) -> int | None:
    value = _parse(text)
    if value is None or value.denominator != 1 or value.numerator < 0:
        return None
    return value.numerator


@lru_cache(maxsize=1024)
def _parse(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    if suffix is not None and suffix not in _SUFFIXES:
        return None
    scale = _SUFFIXES[suffix] if suffix else Fraction(10) ** int(exponent or 0)
    return Fraction(number) * scale
