"""`python -m benchmarks`: what needs no control plane, on the data in `--shared`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.groups import benchmark as groups
from benchmarks.measured import DEFAULT_SHARED, load_machines
from benchmarks.program import make_parser, run_program
from benchmarks.quality import efficiency, fidelity, group_fidelity, replay
from benchmarks.quality.group_points import load_shapes
from benchmarks.quality.queues import load_queue
from benchmarks.speed import reads
from benchmarks.speed.calls import measure_http
from benchmarks.speed.core import measure_core
from benchmarks.speed.load import FULL, QUICK

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from benchmarks.report import ResultTable

__all__ = ["main"]

QUEUES = tuple(f"jobs-300-g2to5-seed{seed}.txt" for seed in range(5))
QUICK_JOBS = 600
"""A smoke run takes so many jobs of a trace."""


def _efficiency(options: Namespace) -> tuple[ResultTable, ...]:
    n_relabellings = 2 if options.quick else efficiency.N_RELABELLINGS
    return efficiency.run(load_machines(options.shared), n_relabellings=n_relabellings)


def _fidelity(options: Namespace) -> tuple[ResultTable, ...]:
    return fidelity.run(load_machines(options.shared))


def _group_fidelity(options: Namespace) -> tuple[ResultTable, ...]:
    return group_fidelity.run(load_shapes(options.shared))


def _replay(options: Namespace) -> tuple[ResultTable, ...]:
    machine = next(m for m in load_machines(options.shared) if m.name == "V100")
    names = QUEUES[:1] if options.quick else QUEUES
    queues = [load_queue(options.shared / "mapa" / "jobs" / name) for name in names]
    return replay.run(machine, queues, n_orders=2 if options.quick else replay.N_ORDERS)


def _groups(options: Namespace) -> tuple[ResultTable, ...]:
    hosts, trace = groups.load_trace(options.shared)
    if options.quick:
        return groups.run(hosts, trace[:QUICK_JOBS], n_seeds=1)
    return groups.run(hosts, trace)


def _speed(options: Namespace) -> tuple[ResultTable, ...]:
    load = QUICK if options.quick else FULL
    return measure_core(load, 0), measure_http(load, 0)


def _reads(options: Namespace) -> tuple[ResultTable, ...]:
    return reads.run(QUICK if options.quick else FULL)


RUNNERS: dict[str, Callable[[Namespace], tuple[ResultTable, ...]]] = {
    "efficiency": _efficiency,
    "fidelity": _fidelity,
    "group-fidelity": _group_fidelity,
    "replay": _replay,
    "groups": _groups,
    "speed": _speed,
    "reads": _reads,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark, print its tables and keep them; returns the exit code."""
    parser = make_parser("benchmarks", [*RUNNERS], "Run benchmarks without a control plane.")
    shared = "Folder of measurements, queues and traces."
    parser.add_argument("--shared", type=Path, default=DEFAULT_SHARED, help=shared)
    return run_program(parser, RUNNERS, arguments)


if __name__ == "__main__":
    sys.exit(main())
