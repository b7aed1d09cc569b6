"""The demo's jobs of several pods, and what runs on the pool already.

Three inference pods of 4 GPUs serve, one on the first node of each leaf, and never end. Then come
a job of 4 pods with 4 GPUs and, their pods in turn, two of 6 pods with 8 GPUs: 9 of 12 nodes are
empty, so there is room for one of the two. All pods of a job carry the annotations of its group;
a scheduler that does not read them places one pod after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.demo.groups.pool import POOL, by_leaf
from benchmarks.demo.pods import DemoPod
from extender.state import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.demo.fleet import DemoNode

__all__ = ["JOBS", "Job", "in_turn", "serving_pods"]

SERVING_GPUS = 4


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
                selects=dict([POOL]),
                group=(self.name, self.n_pods),
            )
            for index in range(self.n_pods)
        )


JOBS = (Job("tune", 4, 4), Job("train-a", 6, 8), Job("train-b", 6, 8))


def in_turn(jobs: Sequence[Job]) -> tuple[DemoPod, ...]:
    """The pods of jobs that are created at the same time: one of each, then the next of each."""
    pods = [job.pods for job in jobs]
    return tuple(
        of_job[index]
        for index in range(max(map(len, pods), default=0))
        for of_job in pods
        if index < len(of_job)
    )


def serving_pods(pool: Mapping[str, DemoNode]) -> tuple[DemoPod, ...]:
    """The pods that run already: one of 4 GPUs on the first node of each leaf."""
    return tuple(
        DemoPod(
            name=f"serve-{number}",
            uid=f"uid-serve-{number}",
            size=SERVING_GPUS,
            selects={HOSTNAME: nodes[0].name},
        )
        for number, nodes in enumerate(by_leaf(pool).values())
    )
