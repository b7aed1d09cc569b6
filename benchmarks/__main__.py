"""The benchmarks' command line: run one or all, show the tables, keep them.

`python -m benchmarks [efficiency|fidelity|group-fidelity|replay|fleet|groups|group-speed|speed|
reads|all]` runs one or all, on the data in `--shared`. Each writes `<name>.json` and `<name>.md`
with environment and date to the folder that `--out` names.
Exit codes: 0 done, 1 a benchmark could not run (the message says why), 2 usage.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.errors import BenchmarkError
from benchmarks.fleet import simulation, streams
from benchmarks.fleet.trace import load_nodes, load_pods
from benchmarks.groups import benchmark as groups
from benchmarks.groups import choice_speed
from benchmarks.measured import DEFAULT_SHARED, load_machines
from benchmarks.quality import efficiency, fidelity, group_fidelity, replay
from benchmarks.quality.group_points import load_shapes
from benchmarks.quality.queues import load_queue
from benchmarks.report import ResultTable, read_environment, to_rich, write_results
from benchmarks.speed import benchmark, reads, whole_domains
from benchmarks.speed import groups as group_speed

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_OUT = Path(__file__).resolve().parent / "results"
QUEUES = tuple(f"jobs-300-g2to5-seed{seed}.txt" for seed in range(5))
LEAST_WIDTH = 140
"""Columns that the widest table needs."""
QUICK_PODS = 600
QUICK_STRIDE = 10
"""A smoke run takes so many pods of a trace, and one node in so many."""


class Name(Enum):
    """What can be run."""

    EFFICIENCY = "efficiency"
    FIDELITY = "fidelity"
    GROUP_FIDELITY = "group-fidelity"
    REPLAY = "replay"
    FLEET = "fleet"
    GROUPS = "groups"
    SPEED = "speed"
    GROUP_SPEED = "group-speed"
    READS = "reads"
    ALL = "all"


def _efficiency(
    shared: Path, advance: Callable[[], None], *, quick: bool
) -> tuple[ResultTable, ...]:
    n_relabellings = 2 if quick else efficiency.N_RELABELLINGS
    return efficiency.run(load_machines(shared), n_relabellings=n_relabellings, advance=advance)


def _fidelity(shared: Path, advance: Callable[[], None], *, quick: bool) -> tuple[ResultTable, ...]:
    del quick
    return fidelity.run(load_machines(shared), advance=advance)


def _group_fidelity(
    shared: Path, advance: Callable[[], None], *, quick: bool
) -> tuple[ResultTable, ...]:
    del quick
    return group_fidelity.run(load_shapes(shared), advance=advance)


def _replay(shared: Path, advance: Callable[[], None], *, quick: bool) -> tuple[ResultTable, ...]:
    machine = next(m for m in load_machines(shared) if m.name == "V100")
    names = QUEUES[:1] if quick else QUEUES
    queues = [load_queue(shared / "mapa" / "jobs" / name) for name in names]
    return replay.run(machine, queues, n_orders=2 if quick else replay.N_ORDERS, advance=advance)


def _fleet(shared: Path, advance: Callable[[], None], *, quick: bool) -> tuple[ResultTable, ...]:
    folder = shared / "traces" / "openb"
    traces = simulation.Traces(
        nodes=load_nodes(folder / "openb_node_list_gpu_node.csv"),
        timed=load_pods(folder / "openb_pod_list_default.csv"),
        filling=load_pods(folder / "openb_pod_list_multigpu50.csv"),
    )
    if not quick:
        return *simulation.run(traces, advance=advance), *streams.run()
    smoke = simulation.Traces(
        nodes=traces.nodes[::QUICK_STRIDE],
        timed=traces.timed.first(QUICK_PODS),
        filling=traces.filling.first(QUICK_PODS),
    )
    return *simulation.run(smoke, n_repeats=1, advance=advance), *streams.run()


def _groups(shared: Path, advance: Callable[[], None], *, quick: bool) -> tuple[ResultTable, ...]:
    data = groups.load_data(shared)
    if quick:
        few = groups.first_jobs(data, QUICK_PODS)
        speed = choice_speed.measure_choice(choice_speed.QUICK_CHOICES, 0)
        return *groups.run(few, n_seeds=1, advance=advance), speed
    speed = choice_speed.measure_choice(choice_speed.FULL_CHOICES, 0)
    return *groups.run(data, advance=advance), speed


def _speed(shared: Path, advance: Callable[[], None], *, quick: bool) -> tuple[ResultTable, ...]:
    del shared
    return benchmark.run(benchmark.QUICK if quick else benchmark.FULL, advance=advance)


def _group_speed(
    shared: Path, advance: Callable[[], None], *, quick: bool
) -> tuple[ResultTable, ...]:
    del shared, advance
    load = group_speed.QUICK if quick else group_speed.FULL
    return group_speed.measure_group_speed(load), whole_domains.measure_whole_domains(load)


def _reads(shared: Path, advance: Callable[[], None], *, quick: bool) -> tuple[ResultTable, ...]:
    del shared
    return reads.run(reads.QUICK_READS if quick else reads.FULL_READS, advance=advance)


_RUNNERS: dict[Name, Callable[..., tuple[ResultTable, ...]]] = {
    Name.EFFICIENCY: _efficiency,
    Name.FIDELITY: _fidelity,
    Name.GROUP_FIDELITY: _group_fidelity,
    Name.REPLAY: _replay,
    Name.FLEET: _fleet,
    Name.GROUPS: _groups,
    Name.SPEED: _speed,
    Name.GROUP_SPEED: _group_speed,
    Name.READS: _reads,
}


def main(
    name: Annotated[Name, typer.Argument(help="Which benchmark.")] = Name.ALL,
    *,
    shared: Annotated[
        Path, typer.Option(help="Folder of measurements, queues and traces.")
    ] = DEFAULT_SHARED,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = DEFAULT_OUT,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run on less data.")] = False,
) -> None:
    """Run a benchmark, print its tables and write them as JSON and Markdown."""
    console = Console(width=max(Console().width, LEAST_WIDTH))
    names = list(_RUNNERS) if name is Name.ALL else [name]
    date = datetime.now(tz=UTC).isoformat(timespec="seconds")
    environment = read_environment(date, {"run": "quick"} if quick else {})
    try:
        for each in names:
            tables = _run(each, console, shared, quick=quick)
            for table in tables:
                console.print(to_rich(table))
            written = write_results(out, each.value, tables, environment)
            console.print(f"{each.value}: written to {written[0]} and {written[1]}")
    except BenchmarkError as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(1) from error


def _run(name: Name, console: Console, shared: Path, *, quick: bool) -> tuple[ResultTable, ...]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name.value, total=None)
        return _RUNNERS[name](shared, lambda: progress.advance(task), quick=quick)


if __name__ == "__main__":
    typer.run(main)
