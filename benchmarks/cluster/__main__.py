"""`python -m benchmarks.cluster`: what runs on the real control plane, built when absent.

Builds the control plane by `tests.cluster.programs.build`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cluster.group_latency import GroupLoad, time_groups
from benchmarks.cluster.latency import VerbTimes
from benchmarks.cluster.pending import wait_beside
from benchmarks.cluster.placement import place_all
from benchmarks.cluster.scale import grow
from benchmarks.cluster.stage import Stage
from benchmarks.cluster.throughput import Setting, compare
from benchmarks.program import make_parser, run_program
from tests.cluster.control.control_plane import ControlPlane
from tests.cluster.programs.build import binaries
from tests.cluster.programs.versions import chosen_minor

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Coroutine

    from benchmarks.report import ResultTable

MACHINES = ("dgx-h100", "dgx-1-v100", "dgx-a100", "8x-a6000-bridged")
"""Machine types of 8 GPUs, in equal parts."""
MIXED = "16x dgx-h100, 16x dgx-1-v100, 8x 8x-a6000-bridged, 8x 8x-l4, 8x 4x-a100-sxm"
"""Nodes of the placement: switched and meshed NVLink, bridged pairs, PCIe only."""
N_SPARE = 36
"""Nodes of the groups beside those that the largest group takes."""


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


async def _throughput(stage: Stage, load: Load) -> tuple[ResultTable, ...]:
    tables: list[ResultTable] = []
    times = VerbTimes()
    by_size = {
        load.n_small: (
            Setting(f"{load.n_small} nodes, all scored", load.n_pods, 100),
            Setting(f"{load.n_small} nodes, pods without GPUs", load.n_pods, 100, has_gpus=False),
        ),
        load.n_large: (
            Setting(f"{load.n_large} nodes, all scored", load.n_pods, 100),
            Setting(f"{load.n_large} nodes, default percentage", load.n_pods, None),
        ),
    }
    for n_nodes, settings in by_size.items():
        times = VerbTimes()
        await stage.replace_nodes(_mixed(n_nodes))
        tables += [
            await compare(stage, setting, n_rounds=load.n_rounds, times=times)
            for setting in settings
        ]
    return *tables, times.table(f"Verbs under the load of {load.n_large} nodes")


async def _pending(stage: Stage, load: Load) -> tuple[ResultTable, ...]:
    await stage.replace_nodes(_mixed(load.n_small // 5))
    n_rounds, n_pending, n_stream = load.n_rounds, load.n_pending, load.n_stream
    table = await wait_beside(stage, n_pending=n_pending, n_stream=n_stream, n_rounds=n_rounds)
    return (table,)


async def _scale(stage: Stage, load: Load) -> tuple[ResultTable, ...]:
    await stage.replace_nodes(_mixed(load.n_large))
    return (await grow(stage, n_pods=load.n_bound, n_rounds=load.n_rounds),)


async def _placement(stage: Stage, load: Load) -> tuple[ResultTable, ...]:
    await stage.replace_nodes(MIXED)
    return (await place_all(stage, n_pods=load.n_placed, seed=1),)


async def _group_latency(stage: Stage, load: Load) -> tuple[ResultTable, ...]:
    await stage.replace_nodes(f"{max(load.groups.sizes) + N_SPARE}x dgx-h100")
    return (await time_groups(stage, load.groups, n_rounds=load.n_rounds),)


BENCHMARKS: dict[str, Callable[[Stage, Load], Coroutine[None, None, tuple[ResultTable, ...]]]] = {
    "throughput": _throughput,
    "pending": _pending,
    "scale": _scale,
    "placement": _placement,
    "group-latency": _group_latency,
}


def _mixed(n_nodes: int) -> str:
    return ", ".join(f"{n_nodes // len(MACHINES)}x {name}" for name in MACHINES)


def _run(name: str, options: Namespace) -> tuple[ResultTable, ...]:
    async def play(plane: ControlPlane) -> tuple[ResultTable, ...]:
        async with Stage.on(plane) as stage:
            return await BENCHMARKS[name](stage, QUICK if options.quick else FULL)

    with (
        tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder,
        ControlPlane(binaries(chosen_minor()), Path(folder)) as plane,
    ):
        return asyncio.run(play(plane))


def main() -> int:
    """Run a benchmark, print its tables and keep them; returns the exit code."""
    parser = make_parser("benchmarks.cluster", [*BENCHMARKS], "Benchmarks on a control plane.")
    runners = {name: partial(_run, name) for name in BENCHMARKS}
    return run_program(parser, runners, facts={"Kubernetes": chosen_minor()}, prefix="cluster-")


if __name__ == "__main__":
    sys.exit(main())
