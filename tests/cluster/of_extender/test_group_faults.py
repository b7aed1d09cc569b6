"""Random groups beside single pods while everything around them dies.

Sizes, GPUs, CPU that two members of one node cannot both have, members that are deleted and made
again; the API server, the scheduler and the extender are killed. etcd's own history says whether a
group was ever partly bound for longer than the scheduler waits for a bind.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from extender.embedded import lay_out, parse_cluster
from tests.cluster.control.api import ApiError, open_api, patiently
from tests.cluster.fleet.checker import Follower, current_revision
from tests.cluster.fleet.group_checker import GroupChecker
from tests.cluster.fleet.judge import Judge
from tests.cluster.fleet.nodes import create_nodes, node_path
from tests.cluster.fleet.stage import start_cast
from tests.cluster.fleet.stand_in import StandIn
from tests.cluster.fleet.workload import PODS, Mix, arrivals, make_pod, pod_path, submit

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.own_plane]

N_GROUPS = int(os.environ.get("COTERIE_GROUPS", "40"))
N_KILLS = int(os.environ.get("COTERIE_GROUP_KILLS", "3"))
SEED = int(os.environ.get("COTERIE_SEED", "1"))
FLEET = parse_cluster("24x dgx-h100, 8x dgx-1-v100")
GROUP = "coterie.gpu/group"
LEAF = "fabric.topograph.run/tier-0"
NODES_OF_A_LEAF = 8
SIZES = {2: 8, 4: 6, 8: 4, 16: 2, 64: 1}
RUN_S = 8.0
GROUPS_PER_S = 1.0
RECOVERY_S = 60.0
"""How soon after the last fault every group has to be complete."""


@dataclass
class Groups:
    """Makes the groups' pods, and those that take the place of deleted ones."""

    api: Any
    chance: random.Random
    made: list[dict[str, Any]] = field(default_factory=list)
    n_deleted: int = 0

    async def create_all(self, n_groups: int) -> None:
        """One group after the other, its members in any order."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(n_groups):
                members = self._draw(f"g{number}")
                self.chance.shuffle(members)
                for manifest in members:
                    tasks.create_task(self._create(manifest))
                if self.chance.random() < 0.3:
                    tasks.create_task(self._replace(self.chance.choice(members)))
                await asyncio.sleep(self.chance.expovariate(GROUPS_PER_S))

    def _draw(self, name: str) -> list[dict[str, Any]]:
        size = self.chance.choices(list(SIZES), list(SIZES.values()))[0]
        gpus = 1 if size == 64 else self.chance.choice((1, 2, 4, 8) if size <= 8 else (1, 2))
        # A hundred of the node's 128: two members of one node cannot both have them.
        cpu = self.chance.choice(("1", "1", "100")) if size <= 8 else "1"
        wishes = {GROUP: name, f"{GROUP}-size": str(size)}
        members = []
        for rank in range(size):
            pod = make_pod(f"{name}-{rank}", gpus, annotations=wishes, runs_s=RUN_S)
            resources = pod["spec"]["containers"][0]["resources"]
            resources["requests"] = resources["limits"] | {"cpu": cpu}
            pod["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(rank)}
            members.append(pod)
        self.made += members
        return members

    async def _create(self, manifest: dict[str, Any]) -> None:
        with suppress(ApiError):  # made already, by an attempt whose answer was lost
            await patiently(lambda: self.api.create(PODS, manifest))

    async def _replace(self, manifest: dict[str, Any]) -> None:
        """As a Job's controller: the pod goes, and another of its name comes."""
        await asyncio.sleep(self.chance.uniform(0, 1.5))
        with suppress(ApiError):
            await patiently(lambda: self.api.end(pod_path(manifest["metadata"]["name"])))
            self.n_deleted += 1
            await asyncio.sleep(self.chance.uniform(0, 1))
            await self._create(manifest)


async def kill_in_turn(cast, chance):
    """SIGKILL, a short death, a restart: the extender, the scheduler, the API server."""
    programs = N_KILLS * [cast.extender, cast.scheduler, cast.control_plane.api_server]
    chance.shuffle(programs)
    for program in programs:
        await asyncio.sleep(chance.uniform(1, 3))
        await asyncio.to_thread(program.kill)
        await asyncio.sleep(chance.uniform(0, 1.5))
        await asyncio.to_thread(program.start)


async def label_leaves(api, nodes):
    """Eight nodes have a leaf switch; the last machines are in none."""
    for number, node in enumerate(nodes):
        if number < 24:
            leaf = {LEAF: f"leaf-{number // NODES_OF_A_LEAF}"}
            await api.patch(node_path(node.name), {"metadata": {"labels": leaf}})


def stuck(checker):
    """The groups that are not complete, and what the scheduler says of their members."""
    for key in checker.incomplete():
        group = checker.groups[key]
        waiting = [pod for pod in checker.unbound() if dict(pod.wishes).get(GROUP) == key[1]]
        said = {f"{pod.reason}: {pod.message[:150]}" for pod in waiting}
        yield f"{key[1]}: {len(group.bound)} of {group.size} bound, {len(waiting)} wait: {said}"


def test_groups_outlive_every_fault(control_plane):
    """None was partly bound for longer than `httpTimeout`; all are complete in the end."""
    cast = start_cast(control_plane)
    timeout_s = float(cast.config["extenders"][0]["httpTimeout"].removesuffix("s"))

    async def main():
        chance = random.Random(SEED)  # noqa: S311 - faults that can be repeated
        checker = GroupChecker(fits=Judge(lay_out(FLEET)).fits)
        plane = cast.control_plane
        begin = await current_revision(plane.etcd_url) + 1
        async with (
            open_api(plane.admin) as api,
            Follower(plane.etcd_url, checker, from_revision=begin) as follower,
            StandIn(api),
        ):
            await label_leaves(api, await create_nodes(api, FLEET))
            groups = Groups(api, chance)
            n_singles = 4 * N_GROUPS
            singles = arrivals(Mix(n_singles, pods_per_s=4, mean_run_s=4, seed=SEED))
            await asyncio.gather(
                groups.create_all(N_GROUPS), submit(api, singles), kill_in_turn(cast, chance)
            )
            try:
                took_s = await follower.until(
                    lambda _: len(checker.groups) == N_GROUPS and not checker.incomplete(),
                    within_s=RECOVERY_S,
                )
            except TimeoutError:
                print("\n".join(stuck(checker)))  # noqa: T201 - why it failed
                raise
            await follower.until(lambda _: not checker.unbound(), within_s=RECOVERY_S)
        return checker, groups, took_s

    try:
        checker, groups, took_s = asyncio.run(main())
    finally:
        cast.stop()
    late = {
        key: round(group.partial_s, 1)
        for key, group in checker.groups.items()
        if group.partial_s > timeout_s and not group.lost
    }
    partly = [group for group in checker.groups.values() if group.lost]
    longest_s = max(group.partial_s for group in checker.groups.values() if not group.lost)
    print(  # noqa: T201 - `pytest -s` shows it
        f"{len(checker.groups)} groups complete {took_s:.1f} s after the last fault; "
        f"{groups.n_deleted} members deleted, {len(partly)} of them while the group was bound; "
        f"longest partly bound {longest_s:.2f} s"
    )
    assert checker.faults == []
    assert late == {}
