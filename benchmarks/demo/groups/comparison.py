"""The same jobs on the same pool: as groups by Coterie, and one pod after the other.

Says which policies play which arrivals. The rival is the demo's stand-in of kube-scheduler without
Coterie: the most-allocated node, GPUs there by NVIDIA's rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.demo.groups.jobs import JOBS, in_turn
from benchmarks.demo.groups.outcome import JobsRun, play_jobs
from benchmarks.demo.policies import MostAllocatedPolicy
from benchmarks.rivals import NVIDIA_BEST_EFFORT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.demo.fleet import DemoNode
    from benchmarks.demo.policies import Policy

__all__ = ["ONE_BY_ONE", "GroupDemo", "compare_jobs"]

ONE_BY_ONE = "one by one"


@dataclass(frozen=True, slots=True)
class GroupDemo:
    """What the two policies did. `in_order`: one by one, the pods of each job before the next's."""

    pool: Mapping[str, DemoNode]
    theirs: JobsRun
    ours: JobsRun
    in_order: JobsRun


def compare_jobs(
    coterie: Policy,
    pool: Mapping[str, DemoNode],
    *,
    seed: int,
    pause: Callable[[float], object] | None = None,
) -> GroupDemo:
    """Play the jobs; the first one's pods come first, those of the others in turn."""
    first, *others = JOBS
    arrivals = (*first.pods, *in_turn(others))
    in_order = tuple(pod for job in JOBS for pod in job.pods)

    def one_by_one() -> Policy:
        note = "most-allocated node, GPUs by NVIDIA's rules"
        return MostAllocatedPolicy(ONE_BY_ONE, note, NVIDIA_BEST_EFFORT, pool, seed=seed)

    return GroupDemo(
        pool=pool,
        theirs=play_jobs(one_by_one(), pool, JOBS, arrivals),
        ours=play_jobs(coterie, pool, JOBS, arrivals, pause=pause),
        in_order=play_jobs(one_by_one(), pool, JOBS, in_order),
    )
