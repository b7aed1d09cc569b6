"""What becomes of the demo's jobs under a policy: who starts, who waits, what the place is worth.

Plays the jobs on the pool and says, for each one, how many pods had a place once all pods had
come, whether it starts at once, later or never, and the all-reduce bandwidth that the core predicts
for the whole job. It places nothing itself, and measures nothing.

Method: a job runs once all its pods are placed (NCCL waits for every rank). All that run end, who
waits is tried again, until nothing runs: what has not run by then never does, since the inference
pods never end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.demo.groups.jobs import serving_pods
from benchmarks.demo.groups.pool import leaf_of
from benchmarks.demo.groups.queue import Queue
from benchmarks.masks import members
from topology.groups import GroupShare, group_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.groups.jobs import Job
    from benchmarks.demo.pods import DemoPod
    from benchmarks.demo.policies import Place, Policy
    from topology.groups import GroupValue

__all__ = ["JobOutcome", "JobsRun", "State", "play_jobs", "say_jobs"]


@dataclass(frozen=True, slots=True)
class State:
    """The pool at one moment: every pod with a place, in the order of binds."""

    placed: tuple[tuple[DemoPod, Place], ...]

    def places(self, job: Job) -> tuple[Place, ...]:
        """Where the pods of a job are that have a place."""
        return tuple(
            place
            for pod, place in self.placed
            if pod.group is not None and pod.group[0] == job.name
        )

    def is_whole(self, job: Job) -> bool:
        """Whether all of them have one."""
        return len(self.places(job)) == job.n_pods


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job: `places` when it starts, or once all pods had come where it never does.

    `n_at_once` pods had a place when all pods of all jobs had come; `starts` says in which state
    the job is whole, 0 being that one, None for never. `value` is None where it never starts.
    """

    job: Job
    n_at_once: int
    starts: int | None
    places: tuple[Place, ...]
    nodes: tuple[str, ...]
    leaves: tuple[str, ...]
    value: GroupValue | None

    @property
    def pods(self) -> str:
        """How many pods have a place once all have come, for people."""
        return f"{self.n_at_once} of {self.job.n_pods}"

    @property
    def note(self) -> str:
        """What becomes of a job that does not start at once; nothing of one that does."""
        if self.starts is None:
            return "never starts"
        return f"later {self.job.n_pods}" if self.starts else ""


@dataclass(frozen=True, slots=True)
class JobsRun:
    """One policy: its states, the first once all pods have come, and each job's outcome."""

    policy: str
    states: tuple[State, ...]
    outcomes: tuple[JobOutcome, ...]

    @property
    def n_held(self) -> int:
        """GPUs held in the first state by jobs that never start."""
        never = (one for one in self.outcomes if one.starts is None)
        return sum(one.n_at_once * one.job.n_gpus for one in never)


def play_jobs(
    policy: Policy,
    pool: Mapping[str, DemoNode],
    jobs: Sequence[Job],
    arrivals: Sequence[DemoPod],
    *,
    pause: Callable[[float], object] | None = None,
) -> JobsRun:
    """Play the jobs to their end, and leave the pool empty."""
    queue = Queue(policy, pause)
    queue.arrive(serving_pods(pool))
    queue.arrive(arrivals)
    states = [State(tuple(queue.placed.values()))]
    while running := [job for job in jobs if states[-1].is_whole(job)]:
        names = {job.name for job in running}
        queue.end(
            [pod for pod, _ in states[-1].placed if pod.group is not None and pod.group[0] in names]
        )
        states.append(State(tuple(queue.placed.values())))
    queue.clear()
    outcomes = tuple(_outcome(job, states, pool) for job in jobs)
    return JobsRun(policy.name, tuple(states), outcomes)


def _outcome(job: Job, states: Sequence[State], pool: Mapping[str, DemoNode]) -> JobOutcome:
    starts = next((i for i, state in enumerate(states) if state.is_whole(job)), None)
    places = states[starts or 0].places(job)
    masks: dict[str, int] = {}
    for place in places:
        masks[place.node] = masks.get(place.node, 0) | place.gpus
    nodes = tuple(name for name in pool if name in masks)
    value = None
    if starts is not None:
        value = group_value([GroupShare(pool[one].tables, members(masks[one])) for one in nodes])
    leaves = tuple(dict.fromkeys(leaf_of(pool[name]) for name in nodes))
    return JobOutcome(job, len(states[0].places(job)), starts, places, nodes, leaves, value)


def say_jobs(theirs: JobsRun, ours: JobsRun) -> str:
    """The result in a sentence or two, from the figures of both."""
    said = (
        f"Of {len(ours.outcomes)} jobs of several pods {ours.policy} starts {_starts(ours)}; "
        f"placed {theirs.policy}, they start {_starts(theirs)}."
    )
    for other, one in zip(theirs.outcomes, ours.outcomes, strict=True):
        if one.starts == other.starts == 0:
            said += f" {one.job.name}: {_worth(one)} with {ours.policy}, {_worth(other)} without."
    return said


def _starts(run: JobsRun) -> str:
    """How many jobs start when.

    >>> _starts(JobsRun("any", (), ()))
    '0 at once'
    """
    at_once = sum(one.starts == 0 for one in run.outcomes)
    later = sum(bool(one.starts) for one in run.outcomes)
    never = sum(one.starts is None for one in run.outcomes)
    said = f"{at_once} at once" + (f", {later} when these have ended" if later else "")
    return said + (f", {never} never, which hold {run.n_held} GPUs" if never else "")


def _worth(one: JobOutcome) -> str:
    value = None if one.value is None else one.value.gbytes_per_s
    shown = "unknown GB/s" if value is None else f"{value:.0f} GB/s"
    return f"{shown} on {_counted(one.nodes, 'node')} under {_counted(one.leaves, 'leaf switch')}"


def _counted(names: Sequence[str], what: str) -> str:
    """A count with its noun.

    >>> _counted(["a"], "node"), _counted(["a", "b"], "leaf switch")
    ('1 node', '2 leaf switches')
    """
    ending = "" if len(names) == 1 else "es" if what.endswith("ch") else "s"
    return f"{len(names)} {what}{ending}"
