"""A picture of the network with the jobs that run on it at one moment, by two policies.

`python -m benchmarks.groups.picture` plays the first seed of the benchmark's first scenario and
writes it as SVG to docs/images/, drawn by `benchmarks.fabric_drawing`. It rates nothing. The
same data give the same bytes under one version of matplotlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.fabric_drawing import FREE, OTHERS, Leaf, Panel, draw_panels
from benchmarks.groups.benchmark import COTERIE, ONE_BY_ONE, SCENARIOS, WAYS, load_data
from benchmarks.groups.hosts import Hosts
from benchmarks.groups.simulation import play
from benchmarks.groups.trace import GPUS_PER_HOST, jobs_of
from benchmarks.measured import DEFAULT_SHARED
from benchmarks.pictures import DEFAULT_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.groups.benchmark import Data
    from benchmarks.groups.simulation import Started

__all__ = ["Cells", "cells_at", "draw_fabric"]

MEMBER_GPUS = 4
SEED = 1
MOMENT = 0.5
"""Of the time until the last arrival."""
TOGETHER, APART = "#2f7fb8", "#d9822b"
LEGEND = {
    TOGETHER: "group within one leaf",
    APART: "group over several leaves",
    OTHERS: "single pod",
    FREE: "free",
}


@dataclass(frozen=True, slots=True)
class Cells:
    """What each GPU of each host does: colours by leaf, host and GPU; and counts of groups."""

    leaves: tuple[tuple[tuple[str, ...], ...], ...]
    n_groups: int
    n_together: int


def cells_at(started: Sequence[Started], hosts: Hosts, moment_s: float) -> Cells:
    """Colour the GPUs at one moment; GPUs of a host are taken from the left, groups first."""
    running = [
        one for one in started if one.started_s <= moment_s < one.started_s + one.job.duration_s
    ]
    colours: list[list[str]] = [[] for _ in hosts.tree.node_names]
    counts = dict.fromkeys((TOGETHER, APART, OTHERS), 0)
    for one in sorted(running, key=lambda one: one.job.n_members == 1):
        leaves = {int(hosts.leaf[host]) for host, _ in one.shares}
        colour = TOGETHER if len(leaves) == 1 else APART
        if one.job.n_members == 1:
            colour = OTHERS
        counts[colour] += 1
        for host, n_members in one.shares:
            colours[host] += [colour] * (n_members * one.job.n_gpus)
    rows = [tuple(row + [FREE] * (GPUS_PER_HOST - len(row))) for row in colours]
    n_leaves = int(hosts.leaf.max()) + 1
    by_leaf = tuple(
        tuple(row for host, row in enumerate(rows) if hosts.leaf[host] == leaf)
        for leaf in range(n_leaves)
    )
    return Cells(by_leaf, counts[TOGETHER] + counts[APART], counts[TOGETHER])


def draw_fabric(data: Data, names: Sequence[str] = (ONE_BY_ONE, COTERIE)) -> str:
    """Play the first scenario with some policies and draw its moment."""
    scenario, paths = SCENARIOS[0], data.hosts[0]
    traces = {name: data.jobs[name] for name in scenario.traces}
    jobs = jobs_of(traces, speed_up=scenario.speed_up, n_gpus=MEMBER_GPUS, seed=SEED)
    moment_s = MOMENT * jobs[-1].arrival_s
    panels: list[Panel] = []
    for name in names:
        hosts = Hosts(paths, SEED)
        cells = cells_at(play(hosts, jobs, WAYS[name]).started, hosts, moment_s)
        said = f"{name}: {cells.n_together} of {cells.n_groups} groups are within one leaf"
        panels.append(Panel(said, tuple(Leaf(rows) for rows in cells.leaves)))
    caption = (
        f"{len(paths)} hosts of 8 GPUs under one spine; a square is a leaf, a row a host, a cell a "
        f"GPU; members of {MEMBER_GPUS} GPUs, {moment_s / 86400:.0f} days into {scenario.traces[0]}"
    )
    return draw_panels(panels, legend=LEGEND, caption=caption)


def main(
    shared: Annotated[Path, typer.Option(help="Folder of the traces.")] = DEFAULT_SHARED,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = DEFAULT_OUT,
) -> None:
    """Write the picture of groups on a network."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "groups-on-a-network.svg"
    path.write_text(draw_fabric(load_data(shared)), encoding="utf-8")
    typer.echo(f"written: {path}")


if __name__ == "__main__":
    typer.run(main)
