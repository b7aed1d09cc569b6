"""Groups: jobs of several nodes on a recorded network, by who places them.

Reports, for recorded jobs on a recorded three-tier network, which share of the groups is within one
leaf or one spine, over how many hosts, what bandwidth that is predicted to give, and what it costs
in waiting: of groups, of all jobs and of single pods. Seeds change the order of arrival and which
of equal hosts kube-scheduler takes; the tables have means over seeds, and their spread.

The policies and their sources are in `policies`, `kueue` and `slurm` of this package, what is
played and how in `simulation` and `trace`.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.groups.figures import Figures, mean_figures, rate_run, spread_of_figures
from benchmarks.groups.hosts import Hosts
from benchmarks.groups.kueue import Kueue
from benchmarks.groups.policies import Coterie, Gang, least_allocated, most_allocated
from benchmarks.groups.simulation import AllOrNone, OneByOne, play
from benchmarks.groups.slurm import Slurm
from benchmarks.groups.trace import jobs_of, load_hosts, load_jobs
from benchmarks.report import ResultTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.groups.trace import TraceJob
    from benchmarks.report import Cell
    from topology.groups import DomainPath

__all__ = [
    "COTERIE",
    "COTERIE_PATIENT",
    "COTERIE_WHOLE",
    "COTERIE_WHOLE_PATIENT",
    "KUEUE",
    "ONE_BY_ONE",
    "SCENARIOS",
    "WAYS",
    "Data",
    "Scenario",
    "first_jobs",
    "load_data",
    "run",
]

PATIENCE_H = 4.0
ONE_BY_ONE = "one by one, LeastAllocated"
KUEUE = "Kueue TAS BestFit"
COTERIE = "Coterie"
COTERIE_WHOLE = "Coterie, keep_domains_whole"
COTERIE_PATIENT = f"Coterie, patience {PATIENCE_H:.0f} h"
COTERIE_WHOLE_PATIENT = f"Coterie, keep_domains_whole, patience {PATIENCE_H:.0f} h"

WAYS: dict[str, AllOrNone | OneByOne] = {
    ONE_BY_ONE: OneByOne(least_allocated),
    "one by one, MostAllocated": OneByOne(most_allocated),
    "gang, spread": AllOrNone(Gang(least_allocated)),
    "gang, pack": AllOrNone(Gang(most_allocated)),
    KUEUE: AllOrNone(Kueue()),
    "Slurm topology/tree": AllOrNone(Slurm()),
    COTERIE: AllOrNone(Coterie()),
    COTERIE_WHOLE: AllOrNone(Coterie(keep_domains_whole=True)),
    COTERIE_PATIENT: AllOrNone(Coterie(), patience_s=PATIENCE_H * 3600),
    COTERIE_WHOLE_PATIENT: AllOrNone(
        Coterie(keep_domains_whole=True), patience_s=PATIENCE_H * 3600
    ),
}
OURS = (COTERIE, COTERIE_WHOLE, COTERIE_PATIENT, COTERIE_WHOLE_PATIENT)
COLUMNS = (
    "policy",
    "one leaf, %",
    "one spine, %",
    "hosts a group",
    "GB/s, mean",
    "GB/s, harmonic",
    "group wait, mean h",
    "group wait, p95 h",
    "all wait, mean h",
    "all wait, p95 h",
    "single wait, mean h",
    "single wait, p95 h",
    "partial GPU-h",
    "scattered, %",
    "makespan, days",
    "never started",
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Hosts, traces, and by what arrivals are divided."""

    title: str
    spines: tuple[str, ...] | None
    traces: tuple[str, ...]
    speed_up: float
    n_seeds: int


SCENARIOS = (
    Scenario("One spine, overloaded", ("P8",), ("trace2",), 3.93, 40),
    Scenario("One spine, full with little queue", ("P8",), ("trace2",), 3.2, 10),
    Scenario(
        "All hosts, five traces at once",
        None,
        ("trace1", "trace2", "trace3", "trace4", "cluster_trace"),
        16.0,
        3,
    ),
)
MEMBER_GPUS = (8, 4)


@dataclass(frozen=True, slots=True)
class Data:
    """What was read: hosts by scenario, jobs by trace."""

    hosts: tuple[Mapping[str, DomainPath], ...]
    jobs: Mapping[str, Sequence[TraceJob]]


def load_data(shared: Path) -> Data:
    """Read the network and the traces; raises `MissingData` where they are not there."""
    topology = shared / "traces" / "lingjun" / "topo.csv"
    names = sorted({name for scenario in SCENARIOS for name in scenario.traces})
    return Data(
        tuple(load_hosts(topology, scenario.spines) for scenario in SCENARIOS),
        {name: load_jobs(shared / "traces" / "muri_philly" / f"{name}.csv") for name in names},
    )


def first_jobs(data: Data, n_jobs: int) -> Data:
    """The first jobs of each trace only, for a smoke run."""
    return replace(data, jobs={name: jobs[:n_jobs] for name, jobs in data.jobs.items()})


def run(
    data: Data, *, n_seeds: int | None = None, advance: Callable[[], None] = lambda: None
) -> tuple[ResultTable, ...]:
    """Play every scenario with every policy; `n_seeds` overrides each scenario's own."""
    tables: list[ResultTable] = []
    means: dict[tuple[str, int], dict[str, Figures]] = {}
    for scenario, paths in zip(SCENARIOS, data.hosts, strict=True):
        traces = {name: data.jobs[name] for name in scenario.traces}
        seeds = range(1, 1 + (n_seeds or scenario.n_seeds))
        for n_gpus in MEMBER_GPUS:
            figures: dict[str, list[Figures]] = {name: [] for name in WAYS}
            for seed in seeds:
                jobs = jobs_of(traces, speed_up=scenario.speed_up, n_gpus=n_gpus, seed=seed)
                for name, way in WAYS.items():
                    hosts = Hosts(paths, seed)
                    figures[name].append(rate_run(play(hosts, jobs, way), hosts))
                    advance()
            notes = _notes(scenario, n_hosts=len(paths), n_gpus=n_gpus, traces=traces, seeds=seeds)
            tables += _tables(f"{scenario.title}, members of {n_gpus} GPUs", figures, notes)
            means[scenario.title, n_gpus] = {
                name: mean_figures(runs) for name, runs in figures.items()
            }
    first = SCENARIOS[0].title
    return _goals({n_gpus: means[first, n_gpus] for n_gpus in MEMBER_GPUS}), *tables


def _notes(
    scenario: Scenario,
    *,
    n_hosts: int,
    n_gpus: int,
    traces: Mapping[str, Sequence[TraceJob]],
    seeds: Sequence[int],
) -> tuple[str, ...]:
    every = [job for trace in traces.values() for job in trace]
    n_groups = sum(job.n_gpus > n_gpus for job in every)
    return (
        f"{n_hosts} hosts of 8 GPUs (assumed) in a recorded Clos network",
        f"{len(every)} jobs of {', '.join(traces)}, {n_groups} of them groups",
        f"arrivals divided by {scenario.speed_up}",
        f"means of {len(seeds)} seeds; backfill in the order of arrival",
        "GB/s: predicted, none of it measured; every host as a recorded DGX H100",
        "partial GPU-h: held by members while others of their group had no host",
        "scattered: share of free GPUs that are not on empty hosts, until the last arrival",
    )


def _tables(
    title: str, figures: Mapping[str, Sequence[Figures]], notes: tuple[str, ...]
) -> tuple[ResultTable, ResultTable]:
    def rows(combine: Callable[[Sequence[Figures]], Figures]) -> tuple[tuple[Cell, ...], ...]:
        return tuple((name, *astuple(combine(runs))) for name, runs in figures.items())

    return (
        ResultTable(title, COLUMNS, rows(mean_figures), notes, digits=1),
        ResultTable(
            f"{title}: standard deviation of seeds", COLUMNS, rows(spread_of_figures), digits=1
        ),
    )


def _goals(means: Mapping[int, Mapping[str, Figures]]) -> ResultTable:
    """What was aimed at, on the first scenario."""
    rows: list[tuple[Cell, ...]] = []
    for n_gpus in MEMBER_GPUS:
        goal = means[n_gpus][KUEUE].one_leaf_percent - 2
        for name in (COTERIE, COTERIE_WHOLE):
            what = f"one leaf, %, members of {n_gpus}: Kueue less 2"
            rows.append(_goal(what, name, means[n_gpus][name].one_leaf_percent, goal))
    four = means[min(MEMBER_GPUS)]
    for name in (COTERIE, COTERIE_WHOLE):
        worth = four[name].harmonic_gbytes_per_s
        for rival, factor in ((KUEUE, 1.05), (ONE_BY_ONE, 1.4)):
            what = f"GB/s harmonic, members of {min(MEMBER_GPUS)}: {factor} x {rival}"
            rows.append(_goal(what, name, worth, factor * four[rival].harmonic_gbytes_per_s))
    for n_gpus in MEMBER_GPUS:
        own = means[n_gpus]
        what = f"group wait p95, h, members of {n_gpus}: at most 0.8 x {ONE_BY_ONE}"
        goal = 0.8 * own[ONE_BY_ONE].group_wait_p95_h
        rows += [
            _goal(what, name, own[name].group_wait_p95_h, goal, at_most=True)
            for name in (COTERIE_PATIENT, COTERIE_WHOLE_PATIENT)
        ]
        partial = max(one.partial_gpu_h for name, one in own.items() if name in OURS)
        what = f"partial GPU-h, members of {n_gpus}: none"
        rows.append(_goal(what, COTERIE, partial, 0.0, at_most=True))
    columns = ("goal", "policy", "measured", "goal's figure", "measured / goal", "met")
    return ResultTable(f"Goals: {SCENARIOS[0].title}", columns, tuple(rows), digits=2)


def _goal(
    what: str, name: str, value: float, goal: float, *, at_most: bool = False
) -> tuple[Cell, ...]:
    is_met = value <= goal if at_most else value >= goal
    return what, name, value, goal, value / goal if goal else None, "yes" if is_met else "no"
