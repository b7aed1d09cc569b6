"""Groups: jobs of several nodes on a recorded network, by who places them.

Reports, for recorded jobs on a recorded three-tier network with more jobs than it can run, which
share of the groups is within one leaf, over how many hosts, what bandwidth that is predicted to
give, and how long groups and single pods wait. Seeds change the order of arrival and which of equal
hosts kube-scheduler takes; figures are means over seeds, with their spread where they are compared.

A group's bandwidth is the bus bandwidth of an all-reduce over it, by the model that
`topology.groups` has of it, on hosts that are all the same machine with one near NIC for each GPU:
predicted, not measured.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean, harmonic_mean, stdev
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.groups.hosts import Hosts
from benchmarks.groups.kueue import Kueue
from benchmarks.groups.policies import MACHINE, Coterie, Gang
from benchmarks.groups.simulation import play
from benchmarks.groups.trace import GPUS_PER_HOST, jobs_of, load_hosts, load_jobs
from benchmarks.report import ResultTable
from topology.groups import GroupShare, group_value
from topology.recordings import load_recording
from topology.select import build_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.groups.policies import GroupPolicy
    from benchmarks.groups.simulation import Started
    from benchmarks.groups.trace import TraceJob
    from benchmarks.report import Cell
    from topology.groups import DomainPath

__all__ = ["POLICIES", "load_trace", "predicted_gbytes_per_s", "rate", "run"]

POLICIES: dict[str, GroupPolicy] = {
    "gang without topology, most-allocated node": Gang(),
    "Kueue TAS BestFit": Kueue(),
    "Coterie, single pods know no leaf": Coterie(fills_leaves=False),
    "Coterie": Coterie(),
}
SPINE = "P8"
TRACE = "trace2"
SPEED_UP = 3.93
"""Arrivals are divided by this: more jobs come than the hosts can run."""
N_SEEDS = 40
MEMBER_GPUS = (8, 4)
S_PER_H = 3600.0
COLUMNS = (
    "policy",
    "GPUs a member",
    "one leaf, %",
    "deviation of seeds",
    "hosts a group",
    "GB/s, mean",
    "GB/s, harmonic",
    "group wait, mean h",
    "p95 h",
    "single wait, mean h",
    "p95 h",
)


def load_trace(shared: Path) -> tuple[dict[str, DomainPath], tuple[TraceJob, ...]]:
    """Read the network and the trace; raises `MissingData` where they are not there."""
    traces = shared / "traces"
    hosts = load_hosts(traces / "lingjun" / "topo.csv", SPINE)
    return hosts, load_jobs(traces / "muri_philly" / f"{TRACE}.csv")


@cache
def predicted_gbytes_per_s(gpus_by_host: tuple[int, ...]) -> float:
    """Bandwidth of a group with so many GPUs on each host, 0 where its NICs are unknown."""
    machine = build_tables(load_recording(MACHINE))
    return (
        group_value([GroupShare(machine, tuple(range(n))) for n in gpus_by_host]).gbytes_per_s
        or 0.0
    )


def rate(started: Sequence[Started], hosts: Hosts) -> tuple[float, ...]:
    """The figures of one run, which must have started a group and a single pod.

    They are those of `COLUMNS` without the deviation.
    """
    groups = [one for one in started if one.job.n_members > 1]
    worth = [
        predicted_gbytes_per_s(tuple(sorted(n * one.job.n_gpus for _, n in one.shares)))
        for one in groups
    ]
    leaves = [{int(hosts.leaf[host]) for host, _ in one.shares} for one in groups]
    waits = [
        [one.wait_s / S_PER_H for one in some]
        for some in (groups, [one for one in started if one.job.n_members == 1])
    ]
    return (
        100 * fmean(len(one) == 1 for one in leaves),
        fmean(len(one.shares) for one in groups),
        fmean(worth),
        harmonic_mean(worth),
        *(figure for some in waits for figure in (fmean(some), float(np.percentile(some, 95)))),
    )


def run(
    paths: Mapping[str, DomainPath], trace: Sequence[TraceJob], *, n_seeds: int = N_SEEDS
) -> tuple[ResultTable, ...]:
    """Play the trace with every policy, by members of each size."""
    rows: list[tuple[Cell, ...]] = []
    for n_gpus in MEMBER_GPUS:
        runs: dict[str, list[tuple[float, ...]]] = {name: [] for name in POLICIES}
        for seed in range(1, 1 + n_seeds):
            jobs = jobs_of(trace, speed_up=SPEED_UP, n_gpus=n_gpus, seed=seed)
            for name, policy in POLICIES.items():
                hosts = Hosts(paths, seed)
                runs[name].append(rate(play(hosts, jobs, policy), hosts))
        for name, figures in runs.items():
            shares, *others = zip(*figures, strict=True)
            spread = stdev(shares) if n_seeds > 1 else 0.0
            rows.append((name, n_gpus, fmean(shares), spread, *map(fmean, others)))
    counts = ", ".join(
        f"{sum(job.n_gpus > n_gpus for job in trace)} of them groups with members of {n_gpus} GPUs"
        for n_gpus in MEMBER_GPUS
    )
    notes = (
        f"{len(paths)} hosts of {GPUS_PER_HOST} GPUs (assumed) under one spine, as recorded",
        f"{len(trace)} jobs of {TRACE}, {counts}; arrivals divided by {SPEED_UP}",
        f"means of {n_seeds} seeds; backfill in the order of arrival",
        "GB/s: predicted, none of it measured; every host as a recorded DGX H100",
    )
    return (ResultTable("Groups on an overloaded network", COLUMNS, tuple(rows), notes, digits=1),)
