"""What the runs are worth: the figures of the table.

Computes, per policy, how close the pods came to the best of their machines, how many waited and
what was stranded. All policies are judged by the same
tables (the value model of `topology.value.set_value`); nothing here is measured bandwidth.

- Judged pods: two or more GPUs and not affinity `none` (their owners said bandwidth does not
  matter). Relative: GB/s of the set over GB/s of the best set of that size on the empty machine.
- Affinity missed: the pod named a level (nvlink, pcie-switch, numa) and its set does not have it.
- Stranded: free GPUs that cannot be put together into pairs (fours) within 10 % of their machine's
  best: the mean over the moments right after each arrival of the second half of the mix, when
  the fleet is full. Machines with fewer GPUs than that count none.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, harmonic_mean
from typing import TYPE_CHECKING

from benchmarks.demo.stranding import Stranding
from topology.select import affinity_level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.timeline import Placed, Run

__all__ = [
    "Figures",
    "Span",
    "compute_figures",
    "has_affinity",
    "show_percent",
    "span",
]

STRANDED_SIZES = (2, 4)


@dataclass(frozen=True, slots=True)
class Figures:
    """One policy's row. Means of relative bandwidth are shares of 1; `stranded` by set size."""

    policy: str
    note: str
    n_judged: int
    mean: float
    harmonic: float
    worst: float
    mean_gbytes_per_s: float
    mean_all: float
    n_missed: int
    n_required_missed: int
    n_waited: int
    mean_wait_minutes: float
    n_unplaced: int
    stranded: Mapping[int, float]
    n_free: float
    peak_share: float


@dataclass(frozen=True, slots=True)
class Span:
    """One policy over several mixes: means with (least, most), and counts for each mix."""

    policy: str
    n_mixes: int
    mean: float
    mean_range: tuple[float, float]
    harmonic: float
    harmonic_range: tuple[float, float]
    worst: float
    n_missed: float
    n_required_missed: float
    n_waited: float
    stranded: Mapping[int, float]
    n_free: float


def compute_figures(run: Run, nodes: Mapping[str, DemoNode]) -> Figures:
    """Sum a run up."""
    multi = [one for one in run.placed if one.pod.size > 1]
    judged = [one for one in multi if one.pod.is_judged]
    relative = [_relative(one, nodes) for one in judged] or [1.0]
    waits = [one.waited_minutes for one in run.placed if one.waited_minutes > 0]
    missed = [one for one in judged if not has_affinity(one, nodes)]
    full = run.moments[len(run.moments) // 2 :]
    n_gpus = sum(node.n_gpus for node in nodes.values())
    stranding = Stranding()
    return Figures(
        policy=run.policy,
        note=run.note,
        n_judged=len(judged),
        mean=fmean(relative),
        harmonic=harmonic_mean(relative),
        worst=min(relative),
        mean_gbytes_per_s=fmean([_value(one, nodes) for one in judged] or [0.0]),
        mean_all=fmean([_relative(one, nodes) for one in multi] or [1.0]),
        n_missed=len(missed),
        n_required_missed=sum(one.pod.is_required for one in missed),
        n_waited=len(waits) + len(run.unplaced),
        mean_wait_minutes=fmean(waits) if waits else 0.0,
        n_unplaced=len(run.unplaced),
        stranded={
            size: fmean(
                sum(
                    stranding.count(nodes[name].tables, free, size)
                    for name, free in moment.free.items()
                )
                for moment in full
            )
            for size in STRANDED_SIZES
        },
        n_free=fmean(moment.n_free for moment in full),
        peak_share=1 - min(moment.n_free for moment in run.moments) / n_gpus,
    )


def span(mixes: Sequence[Figures]) -> Span:
    """Sum one policy up over several mixes, at least one; every mix counts the same."""
    means = [one.mean for one in mixes]
    harmonics = [one.harmonic for one in mixes]
    return Span(
        policy=mixes[0].policy,
        n_mixes=len(mixes),
        mean=fmean(means),
        mean_range=(min(means), max(means)),
        harmonic=fmean(harmonics),
        harmonic_range=(min(harmonics), max(harmonics)),
        worst=min(one.worst for one in mixes),
        n_missed=fmean(one.n_missed for one in mixes),
        n_required_missed=fmean(one.n_required_missed for one in mixes),
        n_waited=fmean(one.n_waited for one in mixes),
        stranded={size: fmean(one.stranded[size] for one in mixes) for size in STRANDED_SIZES},
        n_free=fmean(one.n_free for one in mixes),
    )


def has_affinity(placed: Placed, nodes: Mapping[str, DemoNode]) -> bool:
    """Whether the pod's set has the level that its owner named; True where none was."""
    if placed.pod.size < 2:
        return True
    level = affinity_level(nodes[placed.place.node].tables, placed.pod.policy.affinity)
    return level is None or bool(level[placed.place.gpus])


def show_percent(share: float, digits: int = 0) -> str:
    """Show a share of 1 as a percentage; only what is whole is shown as 100.

    >>> [show_percent(1.0, 1), show_percent(0.9999, 1), show_percent(0.996)]
    ['100.0', '99.9', '99']
    """
    shown = f"{100 * share:.{digits}f}"
    if share < 1 and float(shown) >= 100:
        return f"{100 - 10**-digits:.{digits}f}"
    return shown


def _relative(placed: Placed, nodes: Mapping[str, DemoNode]) -> float:
    return nodes[placed.place.node].relative(placed.place.gpus)


def _value(placed: Placed, nodes: Mapping[str, DemoNode]) -> float:
    return nodes[placed.place.node].value_gbytes_per_s(placed.place.gpus)
