"""A recorded network and recorded jobs: what a benchmark of groups plays.

Reads the hosts of a three-tier Clos network with their switches, and jobs with submit time, GPUs
and duration. It plays nothing.

Sources: Alibaba's dataset of 2023 (Crux, SIGCOMM 2024), whose ASW names repeat under its PSWs; a
Philly trace as published with Muri (SIGCOMM 2022). Both are read from the place that `--shared`
names. How many GPUs a host has is not in the data: 8 are assumed. A job of more GPUs than a member
has is a group of such members, any other one is a single pod.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.errors import BadData, MissingData
from topology.groups import DomainPath, DomainStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["GPUS_PER_HOST", "Job", "TraceJob", "jobs_of", "load_hosts", "load_jobs"]

GPUS_PER_HOST = 8
MS_PER_S = 1000
JITTER_S = 3600.0
"""A seed moves each submission by up to this: jobs change places with some ten others."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace."""

    submitted_s: float
    n_gpus: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Job:
    """One job as it is played: `n_members` pods of `n_gpus` GPUs each."""

    arrival_s: float
    n_members: int
    n_gpus: int
    duration_s: float


def load_hosts(path: Path, spine: str) -> dict[str, DomainPath]:
    """Read each host's path below one spine: ASW as leaf, PSW as spine, DSW as core."""
    hosts: dict[str, DomainPath] = {}
    for row in _rows(path, ("ip", "ASW", "PSW", "DSW")):
        if row["PSW"] == spine:
            levels = (("leaf", row["ASW"]), ("spine", row["PSW"]), ("core", row["DSW"]))
            hosts[row["ip"]] = DomainPath(
                tuple(DomainStep(level, "lingjun", value) for level, value in levels)
            )
    if not hosts:
        msg = f"{path}: no host of spine {spine}, expected some"
        raise BadData(msg)
    return hosts


def load_jobs(path: Path) -> tuple[TraceJob, ...]:
    """Read the jobs of one trace; its times are in milliseconds."""
    jobs: list[TraceJob] = []
    for row in _rows(path, ("num_gpu", "submit_time", "duration")):
        cells = (row["submit_time"], row["num_gpu"], row["duration"])
        if not all(cell.isdigit() for cell in cells):
            msg = f"{path}: submit_time, num_gpu and duration are {cells}, expected whole numbers"
            raise BadData(msg)
        submitted, n_gpus, duration = (int(cell) for cell in cells)
        jobs.append(TraceJob(submitted / MS_PER_S, n_gpus, max(1.0, duration / MS_PER_S)))
    return tuple(jobs)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The rows of a CSV file with a header, which have these columns."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = set(columns) - set(reader.fieldnames or ())
            if missing:
                msg = f"{path}: columns {sorted(missing)} are missing"
                raise BadData(msg)
            yield from reader
    except OSError as error:
        msg = f"trace: {path} cannot be read; name the folder with --shared"
        raise MissingData(msg) from error


def jobs_of(trace: Sequence[TraceJob], *, speed_up: float, n_gpus: int, seed: int) -> list[Job]:
    """All jobs in the order of arrival, their arrivals divided by `speed_up`.

    `n_gpus`: GPUs of a member. Seed 0 keeps the trace's own order, any other one jitters it.
    """
    rng = random.Random(seed)
    jobs: list[Job] = []
    for job in trace:
        jitter = rng.uniform(-JITTER_S, JITTER_S) if seed else 0.0
        size = min(job.n_gpus, n_gpus)
        arrival = max(0.0, job.submitted_s / speed_up + jitter)
        jobs.append(Job(arrival, max(1, job.n_gpus // size), size, job.duration_s))
    return sorted(jobs, key=lambda job: job.arrival_s)
