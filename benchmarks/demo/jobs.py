"""The demo's jobs of several pods: as groups by Coterie, and one pod after the other.

A pool of DGX H100 under the leaves of one spine belongs to the same embedded cluster as the fleet
and carries the labels by which Coterie knows where its nodes are; pods name it in their
nodeSelector. Three inference pods of 4 GPUs serve there, one on the first node of each leaf, and
never end. Then come a job of 4 pods with 4 GPUs and, their pods in turn, two of 6 pods with 8 GPUs:
9 of 12 nodes are empty, so there is room for one of the two.

Method: a job runs once all its pods are placed (NCCL waits for every rank). All that run end, who
waits is tried again, until nothing runs: what has not run by then never does. A pod that waits is
tried whenever a pod was bound or has ended, as kube-scheduler's events do. The bandwidth of a job
is what the core predicts for it; nothing is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.demo.fleet import FLEET, lay_out_nodes
from benchmarks.demo.pods import DemoPod
from extender.embedded import ClusterSpec, parse_cluster
from extender.state import HOSTNAME
from topology.groups import GroupShare, group_value
from topology.model import gpus_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.policies import Place, Policy
    from topology.groups import GroupValue

__all__ = [
    "JOBS",
    "MACHINE",
    "Job",
    "JobOutcome",
    "JobsRun",
    "Queue",
    "by_leaf",
    "in_turn",
    "lay_out_pool",
    "play_jobs",
    "say_jobs",
    "serving_pods",
    "write_cluster",
]

MACHINE = "dgx-h100"
LEAVES = ("leaf-a", "leaf-b", "leaf-c")
NODES_A_LEAF = 4
SERVING_GPUS = 4
PAUSE_S = 0.25
MOST_PAUSES = 16
"""Pauses, 4 s in all, after which pods that were tried again have no place. Coterie plans a group
within 0.5 s of the filter calls for its pods, and one that had no room 0.5 s after the last plan at
the earliest."""
_LEAF, _SPINE = "network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"
_POOL = ("cloud.google.com/gke-nodepool", "training")
"""Label and value of the pool's nodes."""
_GENERAL = {_POOL[0]: "general"}
"""That of all others: where a label is not known of a node, the extender counts it as allowed."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs once all its pods are placed, each with `n_gpus` GPUs."""

    name: str
    n_pods: int
    n_gpus: int

    @property
    def shape(self) -> str:
        """Its size for people."""
        return f"{self.n_pods} pods x {self.n_gpus} GPUs"

    @property
    def pods(self) -> tuple[DemoPod, ...]:
        """Its pods, by index."""
        return tuple(
            DemoPod(
                name=f"{self.name}-{index}",
                uid=f"uid-{self.name}-{index}",
                size=self.n_gpus,
                selects=dict([_POOL]),
                group=(self.name, self.n_pods),
            )
            for index in range(self.n_pods)
        )


JOBS = (Job("tune", 4, 4), Job("train-a", 6, 8), Job("train-b", 6, 8))


def _pool() -> ClusterSpec:
    groups = [
        {
            "count": NODES_A_LEAF,
            "machine": MACHINE,
            "name": leaf.replace("leaf", "h100"),
            "zone": "zone-a",
            "labels": {_LEAF: leaf, _SPINE: "spine-1", _POOL[0]: _POOL[1]},
        }
        for leaf in LEAVES
    ]
    return ClusterSpec.model_validate({"groups": groups})


def lay_out_pool() -> dict[str, DemoNode]:
    """The pool's nodes by name, leaf by leaf."""
    return lay_out_nodes(_pool())


def by_leaf(pool: Mapping[str, DemoNode]) -> dict[str, list[str]]:
    """The names of the nodes of each leaf."""
    leaves: dict[str, list[str]] = {}
    for node in pool.values():
        leaves.setdefault(node.described[_LEAF], []).append(node.name)
    return leaves


def write_cluster(folder: Path, fleet: str = FLEET) -> Path:
    """Describe fleet and pool in a file that the extender starts from; returns its path."""
    general = [one.model_copy(update={"labels": _GENERAL}) for one in parse_cluster(fleet).groups]
    whole = ClusterSpec(groups=[*general, *_pool().groups])
    path = folder / "cluster.yaml"
    # JSON is YAML too.
    path.write_text(whole.model_dump_json(indent=1, exclude_defaults=True), encoding="utf-8")
    return path


def serving_pods(pool: Mapping[str, DemoNode]) -> tuple[DemoPod, ...]:
    """The pods that run already: one on the first node of each leaf."""
    return tuple(
        DemoPod(
            name=f"serve-{number}",
            uid=f"uid-serve-{number}",
            size=SERVING_GPUS,
            selects={HOSTNAME: nodes[0]},
        )
        for number, nodes in enumerate(by_leaf(pool).values())
    )


def in_turn(jobs: Sequence[Job]) -> tuple[DemoPod, ...]:
    """The pods of jobs that are created at the same time: one of each, then the next of each."""
    most = max((job.n_pods for job in jobs), default=0)
    return tuple(job.pods[i] for i in range(most) for job in jobs if i < job.n_pods)


class Queue:
    """Pods under one policy: `placed` in order of their bind by uid, `waiting` in that of arrival.

    `pause` waits for so many seconds; without it no pod is tried again by `settle`.
    """

    def __init__(self, policy: Policy, pause: Callable[[float], object] | None = None) -> None:
        self._policy = policy
        self._pause = pause
        self.placed: dict[str, tuple[DemoPod, Place]] = {}
        self.waiting: list[DemoPod] = []

    def arrive(self, pods: Iterable[DemoPod]) -> None:
        """Pods are created, one after the other."""
        for pod in pods:
            self.waiting.append(pod)
            self.retry()

    def retry(self) -> bool:
        """Try those that wait until no more of them gets a place; whether one did."""
        n_before = len(self.waiting)
        n_waiting = n_before + 1
        while len(self.waiting) < n_waiting:
            n_waiting = len(self.waiting)
            self.waiting = [pod for pod in self.waiting if not self._try(pod)]
        return len(self.waiting) < n_before

    def end(self, pods: Iterable[DemoPod]) -> None:
        """Pods end; then those that wait are tried again."""
        for pod in pods:
            self._policy.end(*self.placed.pop(pod.uid))
        self.retry()

    def settle(self) -> None:
        """Try those that wait until one gets a place, for as long as it may take."""
        n_pauses = 0
        while self._pause is not None and self.waiting and n_pauses < MOST_PAUSES:
            self._pause(PAUSE_S)
            if self.retry():
                return
            n_pauses += 1

    def give_up(self) -> None:
        """Those that wait are wanted no more."""
        for pod in self.waiting:
            self._policy.end(pod, None)
        self.waiting.clear()

    def places(self, job: Job) -> tuple[Place, ...]:
        """Where the pods of a job are that have a place."""
        return tuple(self.placed[pod.uid][1] for pod in job.pods if pod.uid in self.placed)

    def is_whole(self, job: Job) -> bool:
        """Whether all of them have one."""
        return len(self.places(job)) == job.n_pods

    def _try(self, pod: DemoPod) -> bool:
        place = self._policy.place(pod)
        if place is not None:
            self.placed[pod.uid] = (pod, place)
        return place is not None


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job: `places` when it starts, or once all pods had come where it never does.

    `n_at_once` pods had a place when all pods of all jobs had come; `starts` counts how often the
    running jobs had ended when it started, None for never. `value` is None where it never starts.
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
        """How many pods have a place once all have come, and what then becomes of the job."""
        said = f"{self.n_at_once} of {self.job.n_pods}"
        if self.starts is None:
            return f"{said}, never starts"
        return f"{said}, later {self.job.n_pods}" if self.starts else said


@dataclass(frozen=True, slots=True)
class JobsRun:
    """One policy: each job's outcome, and every pod with a place once all had come."""

    policy: str
    outcomes: tuple[JobOutcome, ...]
    placed: tuple[tuple[DemoPod, Place], ...]

    @property
    def n_held(self) -> int:
        """GPUs held once all pods had come by jobs that never start."""
        never = (one for one in self.outcomes if one.starts is None)
        return sum(one.n_at_once * one.job.n_gpus for one in never)


def play_jobs(
    policy: Policy,
    pool: Mapping[str, DemoNode],
    *,
    pause: Callable[[float], object] | None = None,
) -> JobsRun:
    """Play the jobs to their end, and leave the pool empty."""
    queue = Queue(policy, pause)
    first, *others = JOBS
    queue.arrive(serving_pods(pool))
    for pods in (first.pods, in_turn(others)):
        queue.arrive(pods)
        queue.settle()
    placed = tuple(queue.placed.values())
    at_once = {job: queue.places(job) for job in JOBS}
    started: dict[Job, tuple[int, tuple[Place, ...]]] = {}
    number = 0
    while running := [job for job in JOBS if queue.is_whole(job)]:
        started |= {job: (number, queue.places(job)) for job in running}
        queue.end([pod for job in running for pod in job.pods])
        queue.settle()
        number += 1
    queue.give_up()
    queue.end([pod for pod, _ in queue.placed.values()])
    outcomes: list[JobOutcome] = []
    for job, before in at_once.items():
        starts, places = started.get(job, (None, before))
        outcomes.append(_outcome(job, len(before), starts, places, pool))
    return JobsRun(policy.name, tuple(outcomes), placed)


def _outcome(
    job: Job,
    n_at_once: int,
    starts: int | None,
    places: tuple[Place, ...],
    pool: Mapping[str, DemoNode],
) -> JobOutcome:
    masks: dict[str, int] = {}
    for place in places:
        masks[place.node] = masks.get(place.node, 0) | place.gpus
    nodes = tuple(name for name in pool if name in masks)
    leaves = tuple(leaf for leaf, names in by_leaf(pool).items() if set(names) & set(nodes))
    value = None
    if starts is not None:
        value = group_value([GroupShare(pool[one].tables, gpus_of(masks[one])) for one in nodes])
    return JobOutcome(job, n_at_once, starts, places, nodes, leaves, value)


def say_jobs(theirs: JobsRun, ours: JobsRun) -> str:
    """The result for people, a sentence a line, from the figures of both."""
    said = [
        f"Of {len(ours.outcomes)} jobs over several nodes {ours.policy} runs {_runs(ours)}.",
        f"Placed {theirs.policy}: {_runs(theirs)}.",
    ]
    for other, one in zip(theirs.outcomes, ours.outcomes, strict=True):
        if one.starts == other.starts == 0:
            said.append(
                f"{one.job.name}, which runs at once in both: {_worth(one)} with {ours.policy}, "
                f"{_worth(other)} without."
            )
    return "\n".join(said)


def _runs(run: JobsRun) -> str:
    """How many jobs run when.

    >>> _runs(JobsRun("any", (), ()))
    '0 at once'
    """
    at_once = sum(one.starts == 0 for one in run.outcomes)
    later = sum(bool(one.starts) for one in run.outcomes)
    never = sum(one.starts is None for one in run.outcomes)
    said = f"{at_once} at once" + (f" and {later} after them" if later else "")
    if never:
        said += f", and {never} block each other for ever on {run.n_held} idle GPUs"
    return said


def _worth(one: JobOutcome) -> str:
    value = None if one.value is None else one.value.gbytes_per_s
    shown = "unknown GB/s" if value is None else f"{value:.0f} GB/s"
    n_leaves = len(one.leaves)
    return f"{shown} under {n_leaves} leaf switch{'' if n_leaves == 1 else 'es'}"
