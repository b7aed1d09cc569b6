"""One run: jobs arrive, start where a policy finds room for all their members, and end.

Plays arrivals and ends in the order of time, with backfill in the order of arrival: what does not
fit waits, and what comes later may start before it.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.groups.hosts import Hosts
    from benchmarks.groups.policies import GroupPolicy
    from benchmarks.groups.trace import Job

__all__ = ["Started", "play"]

ARRIVES, ENDS = 1, 0
"""At one time GPUs come back before jobs arrive."""


@dataclass(frozen=True, slots=True)
class Started:
    """A job, when it started, and its members by host."""

    job: Job
    started_s: float
    shares: tuple[tuple[int, int], ...]

    @property
    def wait_s(self) -> float:
        """From arrival to start."""
        return self.started_s - self.job.arrival_s


def play(hosts: Hosts, jobs: list[Job], policy: GroupPolicy) -> list[Started]:
    """Play jobs, in the order of arrival, on empty hosts; those that never fit do not start."""
    started: list[Started] = []
    # Of one shape only the oldest need be tried.
    waiting: dict[tuple[int, int], deque[tuple[int, Job]]] = {}
    events = [(job.arrival_s, ARRIVES, i) for i, job in enumerate(jobs)]
    heapq.heapify(events)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, kind, number = heapq.heappop(events)
            if kind == ARRIVES:
                job = jobs[number]
                waiting.setdefault((job.n_members, job.n_gpus), deque()).append((number, job))
            else:
                hosts.give(list(started[number].shares), started[number].job.n_gpus)
        failed: set[tuple[int, int]] = set()
        while heads := [
            (queue[0][0], shape)
            for shape, queue in waiting.items()
            if queue and shape not in failed
        ]:
            _, shape = min(heads)
            job = waiting[shape][0][1]
            n_members, n_gpus = shape
            shares = None
            if int((hosts.free // n_gpus).sum()) >= n_members:
                shares = policy.place(hosts, n_members=n_members, n_gpus=n_gpus)
            if shares is None:
                failed.add(shape)
                continue
            hosts.take(shares, n_gpus)
            waiting[shape].popleft()
            heapq.heappush(events, (now + job.duration_s, ENDS, len(started)))
            started.append(Started(job, now, tuple(shares)))
    return started
