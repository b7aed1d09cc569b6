"""What a run was like: where groups are, what that is worth, how long jobs waited.

Rates runs and combines those of several seeds; it plays nothing.

A group's bandwidth is the bus bandwidth of an all-reduce over it, by the model that
`topology.groups` has of it, on hosts that are all the same machine with one near NIC for each GPU:
predicted, not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from statistics import fmean, harmonic_mean, stdev
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.groups.policies import MACHINE
from topology.groups import GroupShare, group_value
from topology.recordings import load_recording
from topology.select import build_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.groups.hosts import Hosts
    from benchmarks.groups.simulation import Run, Started

__all__ = ["Figures", "mean_figures", "predicted_gbytes_per_s", "rate_run", "spread_of_figures"]

S_PER_H = 3600.0
S_PER_DAY = 24 * S_PER_H


@dataclass(frozen=True, slots=True)
class Figures:
    """One run, or the mean of several."""

    one_leaf_percent: float
    one_spine_percent: float
    hosts_per_group: float
    mean_gbytes_per_s: float
    harmonic_gbytes_per_s: float
    group_wait_mean_h: float
    group_wait_p95_h: float
    all_wait_mean_h: float
    all_wait_p95_h: float
    single_wait_mean_h: float
    single_wait_p95_h: float
    partial_gpu_h: float
    scattered_percent: float
    makespan_days: float
    stuck: float


@cache
def predicted_gbytes_per_s(gpus_by_host: tuple[int, ...]) -> float:
    """Bandwidth of a group with so many GPUs on each host, 0 where its NICs are unknown."""
    machine = build_tables(load_recording(MACHINE))
    return (
        group_value([GroupShare(machine, tuple(range(n))) for n in gpus_by_host]).gbytes_per_s
        or 0.0
    )


def rate_run(run: Run, hosts: Hosts) -> Figures:
    """Rate one run; it must have started a group and a single pod."""
    groups = [one for one in run.started if one.job.n_members > 1]
    singles = [one for one in run.started if one.job.n_members == 1]
    worth = [
        predicted_gbytes_per_s(tuple(sorted(n * one.job.n_gpus for _, n in one.shares)))
        for one in groups
    ]
    n_leaves = [len({int(hosts.leaf[host]) for host, _ in one.shares}) for one in groups]
    n_spines = [len({int(hosts.spine[host]) for host, _ in one.shares}) for one in groups]
    scattered = run.scattered_gpu_s / run.free_gpu_s if run.free_gpu_s else 0.0
    return Figures(
        one_leaf_percent=100 * fmean(n == 1 for n in n_leaves),
        one_spine_percent=100 * fmean(n == 1 for n in n_spines),
        hosts_per_group=fmean(len(one.shares) for one in groups),
        mean_gbytes_per_s=fmean(worth),
        harmonic_gbytes_per_s=harmonic_mean(worth),
        group_wait_mean_h=_mean_h(groups),
        group_wait_p95_h=_p95_h(groups),
        all_wait_mean_h=_mean_h(run.started),
        all_wait_p95_h=_p95_h(run.started),
        single_wait_mean_h=_mean_h(singles),
        single_wait_p95_h=_p95_h(singles),
        partial_gpu_h=run.partial_gpu_s / S_PER_H,
        scattered_percent=100 * scattered,
        makespan_days=run.ended_s / S_PER_DAY,
        stuck=float(run.n_stuck),
    )


def _mean_h(started: Sequence[Started]) -> float:
    return fmean(one.wait_s for one in started) / S_PER_H


def _p95_h(started: Sequence[Started]) -> float:
    return float(np.percentile([one.wait_s for one in started], 95)) / S_PER_H


def mean_figures(runs: Sequence[Figures]) -> Figures:
    """The mean of each figure."""
    return Figures(**{f.name: fmean(getattr(run, f.name) for run in runs) for f in fields(Figures)})


def spread_of_figures(runs: Sequence[Figures]) -> Figures:
    """The standard deviation of each figure, 0 of one run."""
    values = {f.name: [getattr(run, f.name) for run in runs] for f in fields(Figures)}
    return Figures(**{name: stdev(one) if len(one) > 1 else 0.0 for name, one in values.items()})
