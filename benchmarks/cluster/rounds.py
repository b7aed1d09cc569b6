"""Rounds of several arms, one after another, and what they come to.

The summary is the median and spread of each arm's figures, and the median of the ratios to a base
arm *within each round*: whatever else the machine does in a round affects all arms alike. The order
of the arms turns from round to round, so that none always comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Spread", "ratio_to", "spread", "turned"]

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and most of some figures."""

    median: float
    least: float
    most: float


def turned(arms: Sequence[A], round_number: int) -> tuple[A, ...]:
    """The arms in the order of a round.

    >>> turned("abc", 1)
    ('b', 'c', 'a')
    """
    shift = round_number % len(arms)
    return (*arms[shift:], *arms[:shift])


def spread(figures: Sequence[float]) -> Spread:
    """Sum up the figures of an arm.

    >>> spread([3.0, 1.0, 2.0])
    Spread(median=2.0, least=1.0, most=3.0)
    """
    return Spread(median(figures), min(figures), max(figures))


def ratio_to(base: str, figures: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """Each arm's figures over the base arm's of the same round.

    >>> ratio_to("none", {"none": [10.0, 20.0], "some": [5.0, 20.0]})["some"].median
    0.75
    """
    return {
        arm: spread([one / other for one, other in zip(own, figures[base], strict=True)])
        for arm, own in figures.items()
    }
