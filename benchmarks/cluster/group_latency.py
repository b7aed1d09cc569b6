"""How long a group takes: from the creation of its last member until all members are bound.

Both moments are those at which one watch of all pods shows them. Scheduler and extender run with
every setting that mode `second-scheduler` has. Members have 8 GPUs, so that each takes a node, and
nodes have leaf switches of eight nodes.

Measured while nothing else is there, with a single pod of no group for scale; and beside pods that
wait, each of which kube-scheduler tries again whenever a pod is bound.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cluster.binds import follow_binds
from benchmarks.cluster.rounds import turned
from benchmarks.cluster.stage import NAMESPACE, PODS, make_pod
from benchmarks.errors import BenchmarkError
from benchmarks.report import ResultTable
from topology.annotations import pod_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.cluster.binds import BindWatch
    from benchmarks.cluster.stage import Stage
    from benchmarks.report import Cell
    from tests.cluster.control.scheduler import Scheduler

__all__ = ["GroupLoad", "time_groups"]

LEAF = "fabric.topograph.run/tier-0"
NODES_OF_A_LEAF = 8
IDLE_GOALS_S = {16: 1.0, 64: 3.0}
"""By members: goals of the 95th percentile."""
BESIDE_GOAL_S = 12.0
"""Beside waiting pods, the 95th percentile too."""
N_QUIET = 3
"""Reads in a row that find kube-scheduler's queues empty before the next repetition."""
_DEADLINE_S = 120.0
_QUEUES = frozenset({"active", "backoff"})


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """How much is measured.

    `sizes` are members of the groups, the first of which is measured beside `n_waiting` pods. In a
    round each is created so many times.
    """

    sizes: tuple[int, ...] = (16, 64)
    n_waiting: int = 500
    n_idle: int = 8
    n_beside: int = 4


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a row is about, and by when it is to be done."""

    title: str
    goal_s: float | None


async def time_groups(stage: Stage, load: GroupLoad, *, n_rounds: int) -> ResultTable:
    """Time groups on the stage's nodes, of which there are more than a group's members."""
    await stage.clear()
    await _label_leaves(stage)
    times: dict[_Measured, list[float]] = defaultdict(list)
    async with (
        stage.play_as_shipped() as scheduler,
        follow_binds(stage.api, NAMESPACE, sees_unbound=True) as watch,
    ):
        timer = _Timer(stage, scheduler, watch)
        for number in range(n_rounds * load.n_idle):
            for size in turned((1, *load.sizes), number):
                measured = _idle(size)
                times[measured].append(await timer.time(size))
                await timer.settle()
        await timer.park(_without_a_set(load.n_waiting))
        row = f"{load.sizes[0]} members beside {load.n_waiting} pods whose set no node has"
        for _ in range(n_rounds * load.n_beside):
            times[_Measured(row, BESIDE_GOAL_S)].append(await timer.time(load.sizes[0]))
            await timer.settle()
    return _table(times, (await stage.api.get("/api/v1/nodes"))["items"])


def _idle(size: int) -> _Measured:
    title = "one pod of no group, idle" if size == 1 else f"{size} members, idle"
    return _Measured(title, IDLE_GOALS_S.get(size))


class _Timer:
    """Makes groups one at a time and says how long each took."""

    def __init__(self, stage: Stage, scheduler: Scheduler, watch: BindWatch) -> None:
        self._stage = stage
        self._scheduler = scheduler
        self._watch = watch
        self._n_made = 0
        self._paths: list[str] = []

    async def time(self, size: int) -> float:
        """Create a group, or one pod of none; seconds from the last creation to the last bind."""
        self._n_made += 1
        name = f"timed-{self._n_made}"
        pods = [make_pod(f"{name}-{i}", 8, _wishes(name, size)) for i in range(size)]
        names = [pod["metadata"]["name"] for pod in pods]
        self._paths += (f"{PODS}/{one}" for one in names)
        await self._stage.create(pods)
        if not await self._watch.until_bound(*names, deadline_s=_DEADLINE_S):
            n_bound = len(self._watch.at_s.keys() & set(names))
            msg = f"{n_bound} of {size} members bound after {_DEADLINE_S:g} s, expected all"
            raise BenchmarkError(msg)
        created_s = max(self._watch.seen_s[one] for one in names)
        return max(self._watch.at_s[one] for one in names) - created_s

    async def park(self, pods: Sequence[dict[str, Any]]) -> None:
        """Create pods that wait, and return when each was refused and none is tried any more."""
        await self._stage.create(pods)
        await self.settle(n_waiting=len(pods))

    async def settle(self, *, n_waiting: int | None = None) -> None:
        """End what was timed, and wait until kube-scheduler has nothing to try.

        With `n_waiting`, until so many pods have been refused, too. Not by force: the devices of
        pods that were removed so are held for a while.
        """
        await asyncio.gather(*(self._stage.api.end(path) for path in self._paths))
        self._paths.clear()
        n_quiet = 0
        async with asyncio.timeout(_DEADLINE_S):
            while n_quiet < N_QUIET:
                await asyncio.sleep(0.1)
                queued = await asyncio.to_thread(self._queued)
                is_quiet = not sum(queued[one] for one in _QUEUES) and (
                    n_waiting is None or queued["unschedulable"] == n_waiting
                )
                n_quiet = n_quiet + 1 if is_quiet else 0

    def _queued(self) -> dict[str, float]:
        """How many pods are in each of kube-scheduler's queues."""
        metrics = self._scheduler.metrics()
        return {
            sample.labels["queue"]: sample.value
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
            if sample.name == "scheduler_pending_pods"
        }


def _wishes(name: str, size: int) -> dict[str, str]:
    """The annotations of a group's members; none for a pod alone."""
    return {} if size == 1 else {pod_keys.GROUP: name, pod_keys.GROUP_SIZE: str(size)}


def _without_a_set(n_pods: int) -> list[dict[str, Any]]:
    """Pods that ask for a bandwidth which no set of any machine has."""
    wishes = {pod_keys.MIN_BANDWIDTH: "9999"}
    return [make_pod(f"waiting-{i}", 2, wishes) for i in range(n_pods)]


async def _label_leaves(stage: Stage) -> None:
    nodes = (await stage.api.get("/api/v1/nodes"))["items"]
    for number, node in enumerate(nodes):
        labels = {LEAF: f"leaf-{number // NODES_OF_A_LEAF}"}
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        await stage.api.patch(path, {"metadata": {"labels": labels}})


def _table(times: dict[_Measured, list[float]], nodes: Sequence[dict[str, Any]]) -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for measured, seconds in times.items():
        shares = (float(np.quantile(seconds, share)) for share in (0.5, 0.95))
        spread = (min(seconds), max(seconds))
        rows.append((measured.title, len(seconds), *shares, *spread, measured.goal_s))
    notes = (
        f"{len(nodes)} nodes of 8 GPUs; each member requests all GPUs of one",
        "from the moment that a watch shows the last member until it shows the last binding",
        "scheduler and extender with every setting of mode second-scheduler",
        "etcd, API server, scheduler, extender and the watcher share the machine's cores",
        "the goals are for p95",
    )
    columns = ("what", "repetitions", "p50 s", "p95 s", "least s", "most s", "goal s")
    return ResultTable("From the last member to all bound", columns, tuple(rows), notes, digits=2)
