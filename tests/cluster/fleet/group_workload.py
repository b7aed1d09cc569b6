"""Groups that users would submit: seeded, of 2 to 64 members, with all that happens to their pods.

GPUs and CPU differ from group to group; of some, two members of one node cannot both have their
CPU. Single members are deleted and made again, as a Job's controller does, and whole groups, as who
deletes a Job and applies it again.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.cluster.control.api import ApiError, patiently
from tests.cluster.fleet.workload import PODS, make_pod, pod_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.control.api import Api

__all__ = ["PRIORITY_CLASS", "GroupMix", "Groups"]

_CLASS_NAME = "of-groups"
PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": _CLASS_NAME},
    "value": 1000,
}
"""Of every member, above all single pods: kube-scheduler would evict these for one."""
_GROUP = "coterie.gpu/group"
_SIZES = {(2, 3): 8, (4, 7): 6, (8, 15): 4, (16, 31): 2, (32, 64): 1}
"""From and to, and how often; within them all are as likely."""
_SMALL, _LARGE = 8, 32
_NEARLY_A_NODE = "100"
"""CPUs, of a node's 128."""


@dataclass(frozen=True, slots=True)
class GroupMix:
    """A stream of groups. Shares are of all groups; a bound member runs for `run_s`.

    `schedulers` are those of the members, one for each group; the first has most of them.
    """

    n_groups: int
    groups_per_s: float
    seed: int
    schedulers: Sequence[str]
    run_s: float = 4.0
    replaced: float = 0.3
    recreated: float = 0.1


@dataclass
class Groups:
    """Makes the groups' pods, and those that take the place of deleted ones."""

    api: Api
    mix: GroupMix
    n_replaced: int = 0
    n_recreated: int = 0
    _chance: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.mix.seed)  # noqa: S311 - a stream that can be repeated

    async def create_all(self) -> None:
        """One group after the other, its members in any order."""
        chance = self._chance
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.mix.n_groups):
                members = self._draw(f"g{number}")
                chance.shuffle(members)
                draw, delay_s = chance.random(), chance.uniform(0, 1.5)
                created = tasks.create_task(self._create(members))
                if draw < self.mix.replaced:
                    one = [chance.choice(members)]
                    tasks.create_task(self._replace(created, one, delay_s))
                elif draw < self.mix.replaced + self.mix.recreated:
                    tasks.create_task(self._replace(created, members, 2 * delay_s))
                await asyncio.sleep(chance.expovariate(self.mix.groups_per_s))

    def _draw(self, name: str) -> list[dict[str, Any]]:
        chance = self._chance
        size = chance.randint(*chance.choices(list(_SIZES), list(_SIZES.values()))[0])
        gpus = 1 if size >= _LARGE else chance.choice((1, 2, 4, 8) if size < _SMALL else (1, 2))
        cpu = chance.choice(("1", "1", _NEARLY_A_NODE)) if size < _SMALL else "1"
        scheduler = chance.choice((self.mix.schedulers[0], *self.mix.schedulers))
        wishes = {_GROUP: name, f"{_GROUP}-size": str(size)}
        members = []
        for rank in range(size):
            pod = make_pod(
                f"{name}-{rank}",
                gpus,
                annotations=wishes,
                runs_s=self.mix.run_s,
                scheduler=scheduler,
                spec={"priorityClassName": _CLASS_NAME},
            )
            resources = pod["spec"]["containers"][0]["resources"]
            resources["requests"] = resources["limits"] | {"cpu": cpu}
            pod["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(rank)}
            members.append(pod)
        return members

    async def _create(self, manifests: Sequence[dict[str, Any]]) -> None:
        await asyncio.gather(*(self._create_one(one) for one in manifests))

    async def _create_one(self, manifest: dict[str, Any]) -> None:
        try:
            await patiently(lambda: self.api.create(PODS, manifest))
        except ApiError as error:
            if error.status != 409:  # made already, by an attempt whose answer was lost
                raise

    async def _end(self, manifest: dict[str, Any]) -> None:
        await patiently(lambda: self.api.end(pod_path(manifest["metadata"]["name"])))

    async def _replace(
        self, created: asyncio.Task[None], manifests: Sequence[dict[str, Any]], delay_s: float
    ) -> None:
        """As a Job's controller: pods go, and others of their names come."""
        await asyncio.sleep(delay_s)
        if len(manifests) > 1:
            await created  # else some would be made while others are deleted
            self.n_recreated += 1
        else:
            self.n_replaced += 1
        await asyncio.gather(*(self._end(one) for one in manifests))
        await asyncio.sleep(delay_s / 2)
        await created
        await self._create(manifests)
