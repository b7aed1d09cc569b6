"""The command line of the benchmarks on the real control plane.

`python -m benchmarks.cluster [throughput|pending|scale|placement|group-latency|all]`. Builds the
control plane when absent (`tests.cluster.programs.build`), and writes `cluster-<name>.json` and
`.md` with environment and date to the folder that `--out` names. Exit codes: 0 done, 1 a benchmark
could not run, 2 usage.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.cluster.group_latency import GroupLoad, time_groups
from benchmarks.cluster.latency import VerbTimes
from benchmarks.cluster.pending import wait_beside
from benchmarks.cluster.placement import place_all
from benchmarks.cluster.scale import grow
from benchmarks.cluster.stage import Stage
from benchmarks.cluster.throughput import Setting, compare
from benchmarks.errors import BenchmarkError
from benchmarks.report import read_environment, to_rich, write_results
from extender.embedded import parse_cluster
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.fleet.nodes import create_nodes
from tests.cluster.programs.build import binaries
from tests.cluster.programs.versions import chosen_minor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from benchmarks.report import ResultTable

DEFAULT_OUT = Path(__file__).resolve().parents[1] / "results"
MACHINES = ("dgx-h100", "dgx-1-v100", "dgx-a100", "8x-a6000-bridged")
"""Machine types of 8 GPUs, in equal parts."""
MIXED = "16x dgx-h100, 16x dgx-1-v100, 8x 8x-a6000-bridged, 8x 8x-l4, 8x 4x-a100-sxm"
"""Nodes of the placement: switched and meshed NVLink, bridged pairs, PCIe only."""
N_SPARE = 36
"""Nodes of the groups beside those that the largest group takes."""
LEAST_WIDTH = 150


@dataclass(frozen=True, slots=True)
class Load:
    """How much is measured."""

    n_large: int
    n_small: int
    n_pods: int
    n_rounds: int
    n_bound: int
    n_pending: int
    n_stream: int
    n_placed: int
    groups: GroupLoad


FULL = Load(5000, 1000, 1000, 5, 40_000, 500, 300, 400, GroupLoad())
QUICK = Load(40, 20, 40, 1, 200, 10, 20, 20, GroupLoad((2, 4), 10, 1, 1))


class Name(Enum):
    """What can be run."""

    THROUGHPUT = "throughput"
    PENDING = "pending"
    SCALE = "scale"
    PLACEMENT = "placement"
    GROUP_LATENCY = "group-latency"
    ALL = "all"


async def _throughput(
    plane: ControlPlane, load: Load, advance: Callable[[], None]
) -> tuple[ResultTable, ...]:
    tables: list[ResultTable] = []
    times = VerbTimes()
    async with Stage.on(plane) as stage:
        await create_nodes(stage.api, parse_cluster(_mixed(load.n_small)))
        settings = [
            Setting(f"{load.n_small} nodes, all scored", load.n_pods, 100),
            Setting(f"{load.n_small} nodes, pods without GPUs", load.n_pods, 100, has_gpus=False),
        ]
        for setting in settings:
            table = await compare(
                stage, setting, n_rounds=load.n_rounds, times=times, advance=advance
            )
            tables.append(table)
        times = VerbTimes()
        await _replace_nodes(stage, load.n_large)
        for setting in (
            Setting(f"{load.n_large} nodes, all scored", load.n_pods, 100),
            Setting(f"{load.n_large} nodes, default percentage", load.n_pods, None),
        ):
            table = await compare(
                stage, setting, n_rounds=load.n_rounds, times=times, advance=advance
            )
            tables.append(table)
        await stage.clear()
    return *tables, times.table(f"Verbs under the load of {load.n_large} nodes")


async def _pending(
    plane: ControlPlane, load: Load, advance: Callable[[], None]
) -> tuple[ResultTable, ...]:
    async with Stage.on(plane) as stage:
        await create_nodes(stage.api, parse_cluster(_mixed(load.n_small // 5)))
        table = await wait_beside(
            stage,
            n_pending=load.n_pending,
            n_stream=load.n_stream,
            n_rounds=load.n_rounds,
            advance=advance,
        )
    return (table,)


async def _scale(
    plane: ControlPlane, load: Load, advance: Callable[[], None]
) -> tuple[ResultTable, ...]:
    async with Stage.on(plane) as stage:
        await create_nodes(stage.api, parse_cluster(_mixed(load.n_large)))
        table = await grow(stage, n_pods=load.n_bound, n_rounds=load.n_rounds, advance=advance)
    return (table,)


async def _placement(
    plane: ControlPlane, load: Load, advance: Callable[[], None]
) -> tuple[ResultTable, ...]:
    async with Stage.on(plane) as stage:
        await create_nodes(stage.api, parse_cluster(MIXED))
        table = await place_all(stage, n_pods=load.n_placed, seed=1, advance=advance)
    return (table,)


async def _group_latency(
    plane: ControlPlane, load: Load, advance: Callable[[], None]
) -> tuple[ResultTable, ...]:
    async with Stage.on(plane) as stage:
        n_nodes = max(load.groups.sizes) + N_SPARE
        await create_nodes(stage.api, parse_cluster(f"{n_nodes}x dgx-h100"))
        table = await time_groups(stage, load.groups, n_rounds=load.n_rounds, advance=advance)
    return (table,)


_RUNNERS: dict[Name, Callable[..., Coroutine[None, None, tuple[ResultTable, ...]]]] = {
    Name.THROUGHPUT: _throughput,
    Name.PENDING: _pending,
    Name.SCALE: _scale,
    Name.PLACEMENT: _placement,
    Name.GROUP_LATENCY: _group_latency,
}


def main(
    name: Annotated[Name, typer.Argument(help="Which benchmark.")] = Name.ALL,
    *,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = DEFAULT_OUT,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run on less data.")] = False,
    pods: Annotated[int | None, typer.Option(min=10, help="Pods of a round's throughput.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Interleaved rounds.")] = None,
) -> None:
    """Run a benchmark on the real control plane, print its tables and keep them."""
    console = Console(width=max(Console().width, LEAST_WIDTH))
    names = list(_RUNNERS) if name is Name.ALL else [name]
    date = datetime.now(tz=UTC).isoformat(timespec="seconds")
    minor = chosen_minor()
    load = QUICK if quick else FULL
    load = replace(load, n_pods=pods or load.n_pods, n_rounds=rounds or load.n_rounds)
    facts = {"Kubernetes": minor} | ({"run": "quick"} if quick else {})
    environment = read_environment(date, facts)
    programs = binaries(minor)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    try:
        for each in names:
            with (
                tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder,
                ControlPlane(programs, Path(folder)) as plane,
                Progress(
                    *columns, TimeElapsedColumn(), console=console, transient=True
                ) as progress,
            ):
                task = progress.add_task(each.value, total=None)
                tables = asyncio.run(_RUNNERS[each](plane, load, partial(progress.advance, task)))
            for table in tables:
                console.print(to_rich(table))
            written = write_results(out, f"cluster-{each.value}", tables, environment)
            console.print(f"{each.value}: written to {written[0]} and {written[1]}")
    except BenchmarkError as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(1) from error


def _mixed(n_nodes: int) -> str:
    return ", ".join(f"{n_nodes // len(MACHINES)}x {name}" for name in MACHINES)


async def _replace_nodes(stage: Stage, n_nodes: int) -> None:
    """Delete all nodes and make as many as that."""
    await stage.clear()
    await stage.api.call("DELETE", "/api/v1/nodes", {"kind": "DeleteOptions", "apiVersion": "v1"})
    await create_nodes(stage.api, parse_cluster(_mixed(n_nodes)))


if __name__ == "__main__":
    typer.run(main)
