"""Group fidelity: how far the value of a set over nodes is from what was measured.

Reports, over the shapes of one cluster of 4 nodes with 8 H100 (`benchmarks.quality.group_points`)
at 2 GiB, the rank correlation of value and measurement and the relative errors, by number of nodes,
for equal shares, and with the constant fitted without the sets of that total, of that number of
nodes, or of that number of nodes and least share; then how well the value chooses between shapes of
one total; and published points of other clusters.

Fit. The model's one constant is the share of a NIC's rate that gives the least median relative
error, on a grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.quality.fidelity import spearman
from benchmarks.quality.group_points import public_points, shape_shares
from benchmarks.report import ResultTable
from topology.groups import GROUP_STATED_ERROR, NIC_SHARE, group_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from benchmarks.quality.group_points import GroupShape
    from benchmarks.report import Cell

__all__ = ["BIG_ERROR", "GroupFidelity", "compare_groups", "held_out", "run"]

BIG_ERROR = 0.20
"""Sets that are off by more are counted."""
FAR_APART = 0.10
"""Shapes of one total that differ by more are compared as a chooser would."""
SHARES = np.round(np.arange(0.90, 1.0001, 0.004), 3)
_PROBE_SHARE = 0.5
"""A share at which the NICs limit every shape, so that their part shows."""
SOURCE_NOTE = (
    "measured by others: NCCL all-reduce bus bandwidth at 2 GiB, BandPilot (arXiv 2506.15595), "
    "SusCom-Lab/BandPilot at de4dd93"
)


@dataclass(frozen=True, slots=True)
class GroupFidelity:
    """Agreement over some sets: Spearman's rho, and value / measurement - 1 of each."""

    spearman: float
    errors: NDArray[np.float64]

    @property
    def median(self) -> float:
        """Median relative error, whatever its sign."""
        return float(np.median(np.abs(self.errors)))

    def quantile(self, share: float) -> float:
        """A quantile of the relative error, whatever its sign."""
        return float(np.quantile(np.abs(self.errors), share))

    @property
    def n_overrated(self) -> int:
        """Sets whose value is more than `BIG_ERROR` too high."""
        return int((self.errors > BIG_ERROR).sum())

    @property
    def n_underrated(self) -> int:
        """Sets whose value is more than `BIG_ERROR` too low."""
        return int((self.errors < -BIG_ERROR).sum())


@dataclass(frozen=True, slots=True)
class _Parts:
    """The model of each shape by its parts: min(own, share x network); and the measurements."""

    own: NDArray[np.float64]
    network: NDArray[np.float64]
    measured: NDArray[np.float64]

    def value(self, share: float) -> NDArray[np.float64]:
        """GB/s of every shape at a share of the NICs' rate."""
        return np.minimum(self.own, share * self.network)


def _parts(shapes: Sequence[GroupShape]) -> _Parts:
    own, network = [], []
    for shape in shapes:
        shares = shape_shares(shape)
        found = group_value(shares, nic_share=_PROBE_SHARE).gbytes_per_s
        network.append((found or math.nan) / _PROBE_SHARE)
        alone = [share.own.gbytes_per_s for share in shares if len(share.gpus) > 1]
        own.append(min(alone, default=math.inf))
    measured = np.array([shape.gbytes_per_s for shape in shapes])
    return _Parts(np.array(own), np.array(network), measured)


def compare_groups(shapes: Sequence[GroupShape]) -> GroupFidelity:
    """Compare every shape with its value."""
    values = [group_value(shape_shares(shape)).gbytes_per_s for shape in shapes]
    return _fidelity(
        np.array([math.nan if value is None else value for value in values]),
        np.array([shape.gbytes_per_s for shape in shapes]),
    )


def _fidelity(value: NDArray[np.float64], measured: NDArray[np.float64]) -> GroupFidelity:
    keys = [[(round(figure, 6),) for figure in column.tolist()] for column in (value, measured)]
    return GroupFidelity(spearman(*keys), value / measured - 1)


_FOLDS: dict[str, Callable[[GroupShape], tuple[int, ...]]] = {
    "total": lambda shape: (sum(shape.sizes),),
    "number of nodes": lambda shape: (len(shape.sizes),),
    "number of nodes and least share": lambda shape: (len(shape.sizes), min(shape.sizes)),
    "least share": lambda shape: (min(shape.sizes),),
}
"""What sets that are left out together have in common."""


def _left_out(shapes: Sequence[GroupShape], fold: str) -> list[NDArray[np.bool_]]:
    keys = [_FOLDS[fold](shape) for shape in shapes]
    return [np.array([key == one for key in keys]) for one in sorted(set(keys))]


def _fit_share(parts: _Parts, kept: NDArray[np.bool_]) -> float:
    """The share with the least median relative error over the kept shapes; the first of equals."""

    def error(share: float) -> float:
        errors = np.abs(parts.value(share) / parts.measured - 1)[kept]
        return round(float(np.median(errors)), 9)

    return float(min(SHARES, key=error))


def held_out(shapes: Sequence[GroupShape], fold: str) -> GroupFidelity:
    """Compare every shape with its value by a share fitted without the shapes of its fold.

    `fold`: total, number of nodes, number of nodes and least share, or least share.
    """
    parts = _parts(shapes)
    value = np.zeros(len(shapes))
    for out in _left_out(shapes, fold):
        value[out] = parts.value(_fit_share(parts, ~out))[out]
    return _fidelity(value, parts.measured)


def _row(label: str, found: GroupFidelity) -> tuple[Cell, ...]:
    return (
        label,
        len(found.errors),
        found.spearman,
        100 * found.median,
        100 * found.quantile(0.9),
        100 * found.quantile(1.0),
        found.n_overrated,
        found.n_underrated,
        100 * float(np.quantile(found.errors, 0.05)),
    )


def _agreement(shapes: Sequence[GroupShape]) -> ResultTable:
    rows = [_row("all", compare_groups(shapes))]
    for n in sorted({len(shape.sizes) for shape in shapes}):
        some = [shape for shape in shapes if len(shape.sizes) == n]
        rows.append(_row(f"{n} nodes", compare_groups(some)))
    equal = [shape for shape in shapes if len(set(shape.sizes)) == 1]
    rows.append(_row("equal shares", compare_groups(equal)))
    rows += [_row(f"all, fitted without that {fold}", held_out(shapes, fold)) for fold in _FOLDS]
    return ResultTable(
        "Fidelity of the value of a set over nodes",
        (
            *("sets", "n", "Spearman", "median error %", "90th percentile %", "largest %"),
            *("over by 20 %", "under by 20 %", "5th percentile, signed %"),
        ),
        tuple(rows),
        (
            SOURCE_NOTE,
            "4 nodes of 8 H100 with a NIC of 400 Gbit/s for each GPU; values at 1 GiB",
            f"the model's constant, {NIC_SHARE} of a NIC's rate, has the least median error",
            f"`min-bandwidth` of a group subtracts {100 * GROUP_STATED_ERROR:.0f} %",
        ),
    )


def _chooser(shapes: Sequence[GroupShape]) -> ResultTable:
    """As a chooser: the shape ranked first of each total, and pairs of shapes of one total."""
    totals: dict[int, list[tuple[float, float]]] = {}
    for shape in shapes:
        value = group_value(shape_shares(shape)).gbytes_per_s or 0.0
        totals.setdefault(sum(shape.sizes), []).append((value, shape.gbytes_per_s))
    worst, right, n_pairs = 0.0, 0, 0
    for pairs in totals.values():
        top = max(value for value, _ in pairs)
        chosen = min(measured for value, measured in pairs if value == top)
        worst = max(worst, 1 - chosen / max(measured for _, measured in pairs))
        for one, other in combinations(pairs, 2):
            high, low = sorted((one, other), key=lambda pair: pair[1], reverse=True)
            if high[1] > low[1] * (1 + FAR_APART):
                n_pairs += 1
                right += high[0] > low[0]
    return ResultTable(
        "As a chooser between shapes of one total",
        ("totals", "worst loss of the first %", "pairs over 10 % apart", "in the right order %"),
        ((len(totals), 100 * worst, n_pairs, 100 * right / n_pairs if n_pairs else None),),
        ("of shapes with equal values the worst is taken, and a pair of them is not in order",),
    )


def _published() -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for point in public_points():
        found = group_value(point.shares)
        value, limit = found.gbytes_per_s, found.limited_by
        rows.append(
            (
                point.label,
                point.source,
                point.gbytes_per_s,
                value,
                None if value is None else 100 * (value / point.gbytes_per_s - 1),
                None if limit is None else limit.value,
            )
        )
    return ResultTable(
        "Points that others published",
        ("set", "source", "measured GB/s", "value GB/s", "error %", "limited by"),
        tuple(rows),
        ("none of them was used in the fit",),
        digits=1,
    )


def run(shapes: Sequence[GroupShape]) -> tuple[ResultTable, ...]:
    """Compare all shapes and the published points."""
    return _agreement(shapes), _chooser(shapes), _published()
