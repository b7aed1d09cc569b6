"""Job queues on one node: first in, first out, the head blocks the rest.

Computes the order in which the jobs of a queue start on one node, which GPUs each gets from a
policy, and when the last one ends. The loop is as in MAPA's simulator (socal-ucr/MAPA 15e58ab3,
src/MapaSim.hh): every job is queued at t = 0; a job's duration does not depend on its placement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from benchmarks.errors import BadData, MissingData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["Job", "Placement", "QueueOrder", "Replayed", "load_queue", "simulate"]


class QueueOrder(Enum):
    """How the head of the queue blocks the rest."""

    STRICT = "strict"
    """First in, first out."""
    UPSTREAM = "upstream"
    """As MAPA's simulator does it: it erases a started job from the vector that it walks, and so
    skips the next one until the following cycle."""


@dataclass(frozen=True, slots=True)
class Job:
    """One line of a queue; duration in the simulator's cycles."""

    size: int
    duration: int
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """A job and the mask of the GPUs that it got."""

    job: Job
    gpus: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """Every placement in order of start, and the cycle in which the last job ended."""

    placements: tuple[Placement, ...]
    makespan: int


def load_queue(path: Path) -> tuple[Job, ...]:
    """Read `numGpus,pattern,arrival,execTime,bwSensitive,task` lines; arrivals are ignored."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        msg = f"job queue: {path} cannot be read; name the folder with --shared"
        raise MissingData(msg) from error
    jobs: list[Job] = []
    for number, line in enumerate(lines, start=1):
        fields = line.split(",")
        if len(fields) < 5 or not all(fields[i].strip().isdigit() for i in (0, 3, 4)):
            expected = "numGpus,pattern,arrival,execTime,0|1,task"
            msg = f"{path}:{number}: {line[:80]!r}, expected {expected}"
            raise BadData(msg)
        jobs.append(Job(int(fields[0]), int(fields[3]), fields[4].strip() == "1"))
    return tuple(jobs)


def simulate(
    jobs: Sequence[Job],
    n_gpus: int,
    choose: Callable[[int, int, bool], int | None],
    order: QueueOrder = QueueOrder.STRICT,
) -> Replayed:
    """Run a queue on one node; `choose(free, size, is_sensitive)` returns a mask or refuses.

    Raises `BadData` where the head of the queue is refused on an idle node.
    """
    free = (1 << n_gpus) - 1
    now = 0
    waiting = list(jobs)
    running: list[tuple[int, int]] = []
    placements: list[Placement] = []
    while waiting or running:
        free |= sum(gpus for end, gpus in running if end == now)
        running = [(end, gpus) for end, gpus in running if end != now]
        place = 0
        n_before = len(placements)
        while place < len(waiting) and waiting[place].size <= free.bit_count():
            job = waiting[place]
            gpus = choose(free, job.size, job.is_sensitive)
            if gpus is None:
                break
            free &= ~gpus
            running.append((now + job.duration, gpus))
            placements.append(Placement(job, gpus))
            del waiting[place]
            place += order is QueueOrder.UPSTREAM
        if not running and waiting:
            msg = f"job of {waiting[0].size} GPUs is refused on an idle node of {n_gpus}"
            raise BadData(msg)
        has_skipped = order is QueueOrder.UPSTREAM and len(placements) > n_before
        now = now + 1 if has_skipped else min((end for end, _ in running), default=now)
    return Replayed(tuple(placements), now)
