"""The demo's cluster kept live: pods arrive and end for as long as somebody looks at the page.

Fills the embedded cluster with a mix of pods and then goes on with mixes of the next seeds, at a
pace that people can follow, until SIGINT or SIGTERM. On the pool one small job of several pods and
one large one run, and another large one waits for all its nodes; some minutes after a job has ended
the next of its kind comes. It compares nothing.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from benchmarks.demo.jobs import JOBS, Job, Queue, in_turn, serving_pods
from benchmarks.demo.pods import draw_pods
from benchmarks.demo.timeline import Player

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.pods import DemoPod, Product
    from benchmarks.demo.policies import Policy

__all__ = ["JobTraffic", "Traffic", "come_and_go", "until_signal"]

MINUTE_S = 1.0
"""Seconds that a minute of the demo's clock lasts: about a pod a second comes, and one ends."""
MOST_WAITING = 8
"""Pods that wait at most: with so many a pod that would come stays away, as it would in life."""
N_PODS_OF_MIX = 120
JOB_MINUTES = 40
"""How long each job runs."""
GAP_MINUTES = 5
"""From the end of a job to the next of its kind, so that the job that waits has its turn."""


class JobTraffic:
    """Jobs on the pool: `running` since which minute, `waiting` in order of arrival.

    It starts full, at `minute`, with the inference pods of the comparison as they are; `pause`
    waits until the jobs of the start are planned.
    """

    def __init__(
        self,
        policy: Policy,
        pool: Mapping[str, DemoNode],
        *,
        minute: int,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.running: dict[Job, int] = {}
        self.waiting: list[Job] = []
        self._coming: list[tuple[int, Job]] = []
        self._numbers = count(1)
        self._queue = Queue(policy, pause)
        self._queue.arrive(serving_pods(pool))
        first, *others = JOBS
        for kinds in ([first], others):
            self._submit(kinds)
            self._queue.settle()
        self._note(minute)

    def advance(self, minute: int) -> None:
        """Move the clock: what has run for long enough ends, and what waits is tried again."""
        ended = [job for job, since in self.running.items() if minute - since >= JOB_MINUTES]
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
        self.running |= {job: minute for job in self.waiting if self._queue.is_whole(job)}
        self.waiting = [job for job in self.waiting if job not in self.running]


class Traffic:
    """Pods that come and go on the extender's embedded cluster; `minute` is the demo's clock.

    `jobs` are those of several pods, None while there are none.
    """

    def __init__(self, policy: Policy, products: Sequence[Product]) -> None:
        self.player = Player(policy)
        self.minute = 0
        self.jobs: JobTraffic | None = None
        self._pods = _endless(products)
        self._next = next(self._pods)

    def fill(self, n_pods: int = N_PODS_OF_MIX) -> None:
        """Let so many pods arrive at once, by the clock; pods that end meanwhile end."""
        for _ in range(n_pods):
            self.advance(max(0, self._next.arrival_minute - self.minute))
            self._arrive()

    def advance(self, minutes: int = 1) -> None:
        """Move the clock; what ends and what arrives until then does."""
        self.minute += minutes
        if self.jobs is not None:
            self.jobs.advance(self.minute)
        self.player.end_until(self.minute)
        # What was placed is of no use any more, and this may run for days.
        self.player.placed.clear()
        while self._next.arrival_minute < self.minute:
            self._arrive()

    def _arrive(self) -> None:
        if len(self.player.waiting) < MOST_WAITING:
            self.player.arrive(self._next, self.minute)
        self._next = next(self._pods)


def _endless(products: Sequence[Product]) -> Iterator[DemoPod]:
    """Mix after mix, each a continuation of the one before, with names and uids of their own."""
    begin = 0
    for seed in count():
        mix = draw_pods(N_PODS_OF_MIX, seed=seed, products=products)
        for i, pod in enumerate(mix):
            number = seed * N_PODS_OF_MIX + i
            yield replace(
                pod,
                name=f"pod-{number:05d}",
                uid=f"00000000-0000-4000-8001-{number:012d}",
                arrival_minute=begin + pod.arrival_minute,
            )
        begin += mix[-1].arrival_minute + 1


@contextmanager
def until_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set while the block lasts."""
    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def come_and_go(traffic: Traffic, wait: Callable[[float], bool]) -> None:
    """Advance the traffic minute by minute until `wait(seconds)` is true.

    Raises `ServerFailed` where the extender ends meanwhile.
    """
    while not wait(MINUTE_S):
        traffic.advance()
