"""Jobs of several pods that come and go on the pool, for as long as somebody looks at the page.

One small job and one large one run, and another large one waits for all its nodes; some minutes
after a job has ended the next of its kind comes. It compares nothing.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from benchmarks.demo.groups.jobs import JOBS, Job, in_turn, serving_pods
from benchmarks.demo.groups.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.policies import Policy

__all__ = ["JobTraffic"]

DURATION_MINUTES = 40
"""How long each job runs."""
GAP_MINUTES = 5
"""From the end of a job to the next of its kind, so that the job that waits has its turn."""


class JobTraffic:
    """Jobs on the pool; `running` since which minute, `waiting` in order of arrival.

    It starts full, at `minute`, with the inference pods of the comparison as they are.
    """

    def __init__(self, policy: Policy, pool: Mapping[str, DemoNode], *, minute: int) -> None:
        self.running: dict[Job, int] = {}
        self.waiting: list[Job] = []
        self._coming: list[tuple[int, Job]] = []
        self._numbers = count(1)
        self._queue = Queue(policy)
        self._queue.arrive(serving_pods(pool))
        first, *others = JOBS
        self._submit([first])
        self._submit(others)
        self._note(minute)

    def advance(self, minute: int) -> None:
        """Move the clock: what has run for long enough ends, and what waits is tried again."""
        ended = [job for job, since in self.running.items() if minute - since >= DURATION_MINUTES]
        for job in ended:
            del self.running[job]
            self._queue.end(job.pods)
        self._coming += [(minute + GAP_MINUTES, job) for job in ended]
        self._queue.retry()
        self._submit([job for due, job in self._coming if due <= minute])
        self._coming = [(due, job) for due, job in self._coming if due > minute]
        self._note(minute)

    def _submit(self, kinds: Iterable[Job]) -> None:
        """A new job of each kind; their pods come in turn."""
        jobs = [
            replace(job, name=f"{job.name.partition('-')[0]}-{next(self._numbers)}")
            for job in kinds
        ]
        self.waiting += jobs
        self._queue.arrive(in_turn(jobs))

    def _note(self, minute: int) -> None:
        """Which jobs run now."""
        for job in tuple(self.waiting):
            if all(pod.uid in self._queue.placed for pod in job.pods):
                self.waiting.remove(job)
                self.running[job] = minute
