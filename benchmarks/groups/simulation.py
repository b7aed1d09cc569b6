"""One run: jobs arrive, start where a policy finds room for them, and end.

Plays arrivals and ends in the order of time. It rates nothing: `benchmarks.groups.figures` does.

Everything is backfill in the order of arrival: what does not fit waits, and what comes later may
start before it. All or none: a job starts when all members have hosts at once. One by one: members
take GPUs as they find them and hold them until the last one has some, as pods of kube-scheduler
without a gang do; retries are in the order of arrival, which is kinder than its backoff.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.groups.policies import pick_host
from benchmarks.groups.trace import GPUS_PER_HOST
from topology.annotations import ANY_DOMAIN
from topology.groups import MOST_KEPT, MemberShape, WaitingGroup, keep_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.groups.hosts import Hosts, Shares
    from benchmarks.groups.policies import GroupPolicy
    from benchmarks.groups.trace import Job

__all__ = ["AllOrNone", "OneByOne", "Run", "Started", "play"]

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
        """From arrival to the start of the last member."""
        return self.started_s - self.job.arrival_s


@dataclass(slots=True)
class Run:
    """What happened.

    `partial_gpu_s`: GPU-seconds that members held while others of their job had none. Until the
    last arrival: `free_gpu_s`, and `scattered_gpu_s` of those on hosts that were not all free.
    """

    started: list[Started] = field(default_factory=list[Started])
    n_stuck: int = 0
    ended_s: float = 0.0
    partial_gpu_s: float = 0.0
    free_gpu_s: float = 0.0
    scattered_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AllOrNone:
    """Jobs start whole. With a patience, groups that waited for it keep hosts."""

    policy: GroupPolicy
    patience_s: float | None = None

    def queue(self, hosts: Hosts) -> _WholeJobs:
        """An empty queue for one run."""
        return _WholeJobs(hosts, self)


@dataclass(frozen=True, slots=True)
class OneByOne:
    """Members start one after another."""

    rating: Callable[[NDArray[np.int64]], NDArray[np.int64]]

    def queue(self, hosts: Hosts) -> _Members:
        """An empty queue for one run."""
        return _Members(hosts, self)


class _WholeJobs:
    """Waiting jobs by shape: of one shape only the oldest need be tried."""

    def __init__(self, hosts: Hosts, way: AllOrNone) -> None:
        self._hosts, self._way = hosts, way
        self._waiting: dict[tuple[int, int], deque[tuple[int, Job]]] = {}
        self._kept: dict[str, frozenset[str]] = {}

    @property
    def partial_gpus(self) -> int:
        """GPUs that incomplete jobs hold."""
        return 0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def add(self, number: int, job: Job) -> None:
        """Append a job."""
        self._waiting.setdefault((job.n_members, job.n_gpus), deque()).append((number, job))

    def start(self, now: float) -> Iterable[tuple[Job, Shares]]:
        """Start what fits; the GPUs are taken."""
        if self._way.patience_s is not None:
            self._keep(now, self._way.patience_s)
            yield from self._start_keepers()
        failed: set[tuple[int, int]] = set()
        free = self._free_for("")
        while True:
            heads = [
                (queue[0][0], shape)
                for shape, queue in self._waiting.items()
                if queue and shape not in failed
            ]
            if not heads:
                return
            _, shape = min(heads)
            job = self._waiting[shape][0][1]
            shares = self._place(job, free)
            if shares is None:
                failed.add(shape)
                continue
            number = self._waiting[shape].popleft()[0]
            self._kept.pop(str(number), None)
            yield job, shares
            free = self._free_for("")

    def _place(self, job: Job, free: NDArray[np.int64]) -> Shares | None:
        shares = None
        if int((free // job.n_gpus).sum()) >= job.n_members:
            shares = self._way.policy.place(
                self._hosts, free, n_members=job.n_members, n_gpus=job.n_gpus
            )
        if shares is not None:
            self._hosts.take(shares, job.n_gpus)
        return shares

    def _free_for(self, name: str) -> NDArray[np.int64]:
        """Free GPUs without those of hosts that others keep."""
        free = self._hosts.free
        others = [nodes for other, nodes in self._kept.items() if other != name]
        if others:
            free = free.copy()
            free[[self._hosts.place_of[node] for nodes in others for node in nodes]] = 0
        return free

    def _groups(self) -> list[tuple[int, Job]]:
        groups = (one for (n, _), queue in self._waiting.items() if n > 1 for one in queue)
        return sorted(groups, key=lambda one: one[0])

    def _keep(self, now: float, patience_s: float) -> None:
        if len(self._kept) >= MOST_KEPT:
            return
        waiting = [
            WaitingGroup(
                str(number),
                now - job.arrival_s,
                MemberShape(
                    job.n_members,
                    job.n_gpus,
                    self._hosts.free // job.n_gpus,
                    self._hosts.gpus // job.n_gpus,
                ),
                ANY_DOMAIN,
            )
            for number, job in self._groups()
            if now - job.arrival_s >= patience_s
        ]
        self._kept = keep_nodes(self._hosts.tree, waiting, self._kept, patience_s=patience_s)

    def _start_keepers(self) -> Iterable[tuple[Job, Shares]]:
        for number, job in self._groups() if self._kept else ():
            if str(number) not in self._kept:
                continue
            shares = self._place(job, self._free_for(str(number)))
            if shares is not None:
                self._waiting[job.n_members, job.n_gpus].remove((number, job))
                del self._kept[str(number)]
                yield job, shares


class _Members:
    """Waiting jobs by size of member; only the oldest of a size can hold GPUs."""

    def __init__(self, hosts: Hosts, way: OneByOne) -> None:
        self._hosts, self._way = hosts, way
        self._waiting: dict[int, deque[tuple[int, Job]]] = {}
        self._held: dict[int, dict[int, int]] = {}

    @property
    def partial_gpus(self) -> int:
        """GPUs that incomplete jobs hold."""
        return sum(size * sum(held.values()) for size, held in self._held.items())

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def add(self, number: int, job: Job) -> None:
        """Append a job."""
        self._waiting.setdefault(job.n_gpus, deque()).append((number, job))

    def start(self, now: float) -> Iterable[tuple[Job, Shares]]:
        """Give members hosts; a job starts with its last one."""
        del now
        failed: set[int] = set()
        while True:
            heads = [
                (queue[0][0], size)
                for size, queue in self._waiting.items()
                if queue and size not in failed
            ]
            if not heads:
                return
            _, size = min(heads)
            job = self._waiting[size][0][1]
            if not self._fill(job):
                failed.add(size)
                continue
            self._waiting[size].popleft()
            yield job, sorted(self._held.pop(size).items())

    def _fill(self, job: Job) -> bool:
        held = self._held.setdefault(job.n_gpus, {})
        while sum(held.values()) < job.n_members:
            host = pick_host(self._hosts, self._hosts.free, job.n_gpus, self._way.rating)
            if host is None:
                return False
            self._hosts.take([(host, 1)], job.n_gpus)
            held[host] = held.get(host, 0) + 1
        return True


def play(hosts: Hosts, jobs: list[Job], way: AllOrNone | OneByOne) -> Run:
    """Play jobs, in the order of arrival, on empty hosts."""
    run = Run()
    queue = way.queue(hosts)
    events: list[tuple[float, int, int]] = [
        (job.arrival_s, ARRIVES, i) for i, job in enumerate(jobs)
    ]
    heapq.heapify(events)
    last_arrival = max((job.arrival_s for job in jobs), default=0.0)
    now = 0.0
    while events:
        then = events[0][0]
        _count(
            run,
            hosts,
            partial_gpus=queue.partial_gpus,
            passed_s=then - now,
            loaded_s=min(then, last_arrival) - now,
        )
        now = then
        while events and events[0][0] == now:
            _, kind, number = heapq.heappop(events)
            if kind == ARRIVES:
                queue.add(number, jobs[number])
            else:
                ended = run.started[number]
                hosts.give(list(ended.shares), ended.job.n_gpus)
        for job, shares in queue.start(now):
            heapq.heappush(events, (now + job.duration_s, ENDS, len(run.started)))
            run.started.append(Started(job, now, tuple(shares)))
    run.n_stuck = len(queue)
    run.ended_s = now
    return run


def _count(run: Run, hosts: Hosts, *, partial_gpus: int, passed_s: float, loaded_s: float) -> None:
    run.partial_gpu_s += partial_gpus * passed_s
    if loaded_s > 0:
        free = int(hosts.free.sum())
        whole = GPUS_PER_HOST * int((hosts.free == GPUS_PER_HOST).sum())
        run.free_gpu_s += free * loaded_s
        run.scattered_gpu_s += (free - whole) * loaded_s
