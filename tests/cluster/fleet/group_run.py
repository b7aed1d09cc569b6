"""A run of random groups beside single pods while everything around them dies.

Starts the programs, kills the API server, schedulers and extenders in two streams side by side, so
that deaths meet, and says from etcd's own history what came of it: whether a group was partly bound
for longer than the scheduler waits for a bind, whether a device was given twice, whether a pod was
evicted for a group, and how soon after the last fault every group was complete. Nothing is decided
by what Coterie says of itself.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from extender.embedded import parse_cluster
from tests.cluster.control.api import open_api
from tests.cluster.fleet.checker import Follower, current_revision
from tests.cluster.fleet.gangs import Gangs
from tests.cluster.fleet.group_checker import GroupChecker
from tests.cluster.fleet.group_workload import PRIORITY_CLASS, GroupMix, Groups
from tests.cluster.fleet.nodes import create_nodes, node_path
from tests.cluster.fleet.stage import start_cast
from tests.cluster.fleet.stand_in import StandIn
from tests.cluster.fleet.workload import SCHEDULER, Mix, arrivals, submit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from extender.embedded.spec import EmbeddedNode
    from tests.cluster.control.api import Api
    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.control.extender_process import ExtenderProcess
    from tests.cluster.control.processes import Program
    from tests.cluster.control.scheduler import Scheduler
    from tests.cluster.fleet.checker import PodState

__all__ = ["Outcome", "Run", "run_groups"]

FLEET = parse_cluster("24x dgx-h100, 8x dgx-1-v100")
LEAF = "fabric.topograph.run/tier-0"
NODES_OF_A_LEAF = 8
N_WITH_LEAF = 24
"""The last machines are in no leaf."""
RECOVERY_S = 60.0
"""How soon after the last fault every group has to be complete."""
_SINGLES_PER_GROUP = 4


@dataclass(frozen=True, slots=True)
class Run:
    """What is run. Every program is killed `n_kills` times.

    A second scheduler has a profile, single pods and groups of its own, and calls the same
    extender.
    """

    n_groups: int = 40
    seed: int = 1
    n_schedulers: int = 1
    n_kills: int = 3
    groups_per_s: float = 1.0

    @property
    def scheduler_names(self) -> list[str]:
        """Their profiles for GPU pods."""
        return [SCHEDULER, *(f"{SCHEDULER}-{i}" for i in range(2, self.n_schedulers + 1))]


@dataclass
class Programs:
    """What is killed."""

    plane: ControlPlane
    extender: ExtenderProcess
    schedulers: list[Scheduler]
    timeout_s: float

    @classmethod
    def start(cls, plane: ControlPlane, run: Run) -> Programs:
        """Extender and schedulers as deploy/ runs them."""
        names = run.scheduler_names
        cast = start_cast(plane, "--scheduler-names", ",".join(names))
        others = [_start_scheduler(plane, cast.config, name) for name in names[1:]]
        timeout_s = float(cast.config["extenders"][0]["httpTimeout"].removesuffix("s"))
        return cls(plane, cast.extender, [cast.scheduler, *others], timeout_s)

    def stop(self) -> None:
        """End them; the control plane goes on."""
        for program in (*self.schedulers, self.extender):
            program.stop()


@dataclass
class Faults:
    """Kills programs, one stream for the API server and one for all that call it."""

    programs: Programs
    run: Run
    chance: random.Random
    n_done: int = 0

    async def all(self) -> None:
        """Every kill, spread over the time in which groups are made."""
        n_kills = self.run.n_kills
        inside: list[Program] = [self.programs.extender, *self.programs.schedulers]
        server: Program = self.programs.plane.api_server
        span_s = self.run.n_groups / self.run.groups_per_s
        await asyncio.gather(
            self._stream(n_kills * inside, span_s),
            self._stream(n_kills * [server], span_s),
        )

    async def _stream(self, plan: list[Program], span_s: float) -> None:
        """SIGKILL, a short death, a restart."""
        self.chance.shuffle(plan)
        pause_s = span_s / len(plan)
        for program in plan:
            began_s = asyncio.get_running_loop().time()
            rest_s = self.chance.uniform(0.5, 1.5) * pause_s
            await asyncio.to_thread(program.kill)
            await asyncio.sleep(self.chance.uniform(0, 1.5))
            await asyncio.to_thread(program.start)
            self.n_done += 1
            await asyncio.sleep(max(0.0, began_s + rest_s - asyncio.get_running_loop().time()))


@dataclass
class Outcome:
    """What came of a run; `took_s` is from the last fault until every group was complete."""

    run: Run
    checker: GroupChecker
    timeout_s: float
    n_faults: int = 0
    n_replaced: int = 0
    n_recreated: int = 0
    n_preempt_calls: int = 0
    took_s: float | None = None
    stuck: list[str] = field(default_factory=list)

    def broken(self) -> list[str]:
        """Every promise that was not kept, in words."""
        return [
            *(str(fault) for fault in self.checker.faults),
            *(
                f"group {one.name}: partly bound for {one.partial_s:.1f} s, {len(one.bound)} bound "
                f"and {len(one.refused)} refused of {one.size}, expected at most "
                f"{self.timeout_s:g} s"
                for one in self.checker.every_group()
                if one.partial_s > self.timeout_s
            ),
            *(f"pod {name}: evicted for a group" for name in self.checker.evicted.values()),
            *self.stuck,
        ]

    def summary(self) -> str:
        """What the run was worth."""
        every = list(self.checker.every_group())
        partly_s = [one.partial_s for one in every]
        n_refused = sum(len(one.refused) for one in every)
        n_pods = sum(len(one.bound) for one in every)
        done = "not complete" if self.took_s is None else f"complete {self.took_s:.1f} s after it"
        return (
            f"seed {self.run.seed}: {len(every)} groups with {n_pods} bound members beside "
            f"{self.checker.n_bound - n_pods} single pods, {self.run.n_schedulers} "
            f"schedulers; {self.n_faults} faults, {done}; "
            f"{self.n_replaced} members and {self.n_recreated} groups made again; "
            f"{n_refused} members refused by the API server; partly bound at most "
            f"{max(partly_s, default=0.0):.2f} s, {sum(one > 1 for one in partly_s)} for more "
            f"than 1 s; {self.n_preempt_calls} preempt calls, {len(self.checker.evicted)} evicted"
        )


def run_groups(plane: ControlPlane, run: Run) -> Outcome:
    """Run it on a control plane without scheduler."""
    programs = Programs.start(plane, run)
    try:
        return asyncio.run(_run(programs, run))
    finally:
        programs.stop()


async def _run(programs: Programs, run: Run) -> Outcome:
    plane, checker = programs.plane, GroupChecker()
    outcome = Outcome(run, checker, programs.timeout_s)
    chance = random.Random(run.seed)  # noqa: S311 - faults that can be repeated
    begin = await current_revision(plane.etcd_url) + 1
    async with (
        open_api(plane.admin) as api,
        Follower(plane.etcd_url, checker, from_revision=begin) as follower,
        StandIn(api, gangs=Gangs()),
    ):
        await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", PRIORITY_CLASS)
        await _label_leaves(api, await create_nodes(api, FLEET))
        mix = GroupMix(run.n_groups, run.groups_per_s, run.seed, run.scheduler_names)
        groups, faults = Groups(api, mix), Faults(programs, run, chance)
        await asyncio.gather(groups.create_all(), submit(api, _singles(run)), faults.all())
        outcome.n_faults = faults.n_done
        outcome.n_replaced, outcome.n_recreated = groups.n_replaced, groups.n_recreated
        try:
            outcome.took_s = await follower.until(
                lambda _: len(checker.groups) == run.n_groups and not checker.incomplete(),
                within_s=RECOVERY_S,
            )
            await follower.until(lambda _: not checker.unbound(), within_s=RECOVERY_S)
        except TimeoutError:
            outcome.stuck = list(_stuck(checker))
    outcome.n_preempt_calls = sum(
        line.get("verb") == "preempt" for line in programs.extender.events("answered")
    )
    return outcome


def _singles(run: Run) -> list[Any]:
    """Pods of no group, each of one of the schedulers."""
    chance = random.Random(run.seed)  # noqa: S311 - a stream that can be repeated
    rate = _SINGLES_PER_GROUP * run.groups_per_s
    mix = Mix(_SINGLES_PER_GROUP * run.n_groups, pods_per_s=rate, mean_run_s=4, seed=run.seed)
    stream = arrivals(mix)
    for one in stream:
        one.manifest["spec"]["schedulerName"] = chance.choice(run.scheduler_names)
    return stream


def _stuck(checker: GroupChecker) -> Iterator[str]:
    """Groups that are not complete, and single pods that wait: what the scheduler says of them."""
    waiting = checker.unbound()
    for name in checker.incomplete():
        group = checker.groups[name]
        said = Counter(_said(pod) for pod in waiting if pod.uid in group.present)
        yield f"group {name}: {len(group.bound)} of {group.size} bound; {dict(said)}"
    members = {uid for group in checker.groups.values() for uid in group.present}
    said = Counter(_said(pod) for pod in waiting if pod.uid not in members)
    yield from (f"{count} single pods wait: {text}" for text, count in said.items())


def _said(pod: PodState) -> str:
    """The reason, without the names of pods and nodes."""
    message = pod.message.rpartition("': ")[2]
    return f"{pod.reason}: {message[:150]}"


async def _label_leaves(api: Api, nodes: Sequence[EmbeddedNode]) -> None:
    for number, node in enumerate(nodes[:N_WITH_LEAF]):
        labels = {LEAF: f"leaf-{number // NODES_OF_A_LEAF}"}
        await api.patch(node_path(node.name), {"metadata": {"labels": labels}})


def _start_scheduler(plane: ControlPlane, config: dict[str, Any], name: str) -> Scheduler:
    other = deepcopy(config)
    other["profiles"] = [{"schedulerName": name, "percentageOfNodesToScore": 100}]
    return plane.start_scheduler(other, name=name)
