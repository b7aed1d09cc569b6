"""What was measured on a node: bandwidths of pairs and sets, and how they came about.

What it answers: the part of a node's model that people measure, as frozen values that check
themselves; `topology.model.node_topology` offers them with the rest of the model. It never lets a
figure change a value (`topology.value.measured`) and reads no file
(`topology.model.measurement_file`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.errors import InvalidTopology

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CLASS_GAP",
    "MAX_MEASURED",
    "MIN_MEASURED",
    "MeasuredPair",
    "MeasuredSet",
    "Measurement",
    "first_repeated",
    "group_in_classes",
    "pair_classes",
    "raw_pairs",
    "set_figures",
]

MIN_MEASURED, MAX_MEASURED = 1e-3, 1e6
"""Measured GB/s that may be real: a thousandth of a GB/s is a broken link, a million is beyond any
set of GPUs in one node."""


CLASS_GAP = 0.10
"""Figures closer than this share a class; a share of the higher one."""


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Measured all-reduce bus bandwidth of two GPUs, GB/s, first < second."""

    first: int
    second: int
    bandwidth_gbytes_per_s: float


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """Measured all-reduce bus bandwidth of a set of GPUs (ascending indices), GB/s."""

    gpus: tuple[int, ...]
    bandwidth_gbytes_per_s: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """Bandwidths measured on this very node, and how: NCCL all_reduce_perf bus bandwidth.

    `message_bytes` is the message size of the run, None where unknown.
    """

    pairs: tuple[MeasuredPair, ...] = ()
    sets: tuple[MeasuredSet, ...] = ()
    message_bytes: int | None = None
    nccl_version: str | None = None
    date: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        for gpus, bandwidth in self.figures:
            if len(gpus) < 2 or any(g < 0 for g in gpus) or list(gpus) != sorted(set(gpus)):  # noqa: PLR2004 - a pair
                msg = f"measured set {gpus}: expected at least 2 different GPUs, ascending"
                raise InvalidTopology(msg)
            if not MIN_MEASURED <= bandwidth <= MAX_MEASURED:
                expected = f"expected a positive number, {MIN_MEASURED:g}..{MAX_MEASURED:g}"
                msg = f"measured set {gpus}: {bandwidth} GB/s, {expected}"
                raise InvalidTopology(msg)
        for label, keys in (
            ("pair", [(p.first, p.second) for p in self.pairs]),
            ("set", [s.gpus for s in self.sets]),
        ):
            if len(keys) != len(set(keys)):
                twice = first_repeated(keys)
                msg = f"measured {label} {twice} is given twice, expected once"
                raise InvalidTopology(msg)
        if self.message_bytes is not None and self.message_bytes < 1:
            msg = f"measurement: message_bytes is {self.message_bytes}, expected at least 1"
            raise InvalidTopology(msg)

    @property
    def figures(self) -> list[tuple[tuple[int, ...], float]]:
        """All pairs and sets, in this order: GPUs and GB/s."""
        pairs = [((p.first, p.second), p.bandwidth_gbytes_per_s) for p in self.pairs]
        return [*pairs, *((s.gpus, s.bandwidth_gbytes_per_s) for s in self.sets)]


def first_repeated(keys: Sequence[object]) -> object:
    """Return the key that the shortest prefix repeats; linear, since a text may hold thousands."""
    first_seen = {key: i for i, key in reversed(list(enumerate(keys)))}
    return next(key for i, key in enumerate(keys) if first_seen[key] != i)


def group_in_classes(figures: Sequence[float]) -> dict[float, float]:
    """Map each figure to its class's median in two significant digits, the highest class first.

    >>> group_in_classes([42.2, 42.3, 22.0, 4.12])
    {42.3: 42.0, 42.2: 42.0, 22.0: 22.0, 4.12: 4.1}
    """
    classes: list[list[float]] = []
    for figure in sorted(figures, reverse=True):
        if classes and figure >= classes[-1][-1] * (1 - CLASS_GAP):
            classes[-1].append(figure)
        else:
            classes.append([figure])
    return {figure: _rounded(_median(members)) for members in classes for figure in members}


def _median(descending: Sequence[float]) -> float:
    n = len(descending)
    return (descending[(n - 1) // 2] + descending[n // 2]) / 2


def _rounded(figure: float) -> float:
    return float(f"{figure:.2g}")


def set_figures(measurement: Measurement) -> dict[tuple[int, ...], float]:
    """The measured sets of three GPUs and more as they enter the value: two significant digits."""
    return {
        entry.gpus: _rounded(entry.bandwidth_gbytes_per_s)
        for entry in sorted(measurement.sets, key=lambda entry: entry.gpus)
        if len(entry.gpus) > 2  # noqa: PLR2004 - pairs have classes
    }


def pair_classes(measurement: Measurement) -> dict[tuple[int, int], float]:
    """The class figure of every measured pair, GB/s at the measurement's own message size.

    A measured set of two GPUs counts as a pair.
    """
    raw = raw_pairs(measurement)
    classes = group_in_classes(list(raw.values()))
    return {pair: classes[figure] for pair, figure in sorted(raw.items())}


def raw_pairs(measurement: Measurement) -> dict[tuple[int, int], float]:
    """The figure of every measured pair as it was measured, GB/s."""
    raw = {
        (entry.gpus[0], entry.gpus[1]): entry.bandwidth_gbytes_per_s
        for entry in measurement.sets
        if len(entry.gpus) == 2  # noqa: PLR2004 - a pair
    }
    raw.update({(p.first, p.second): p.bandwidth_gbytes_per_s for p in measurement.pairs})
    return raw
