"""Preemption with the real scheduler: who has to leave, who must not, and who gets the place.

The stage is one DGX-1 with a pod on each GPU. Its GPUs 0 and 1, and 6 and 7, are NVLink pairs
without a link between them; kube-scheduler, which counts, evicts the four pods of least priority
there, and four GPUs that NVLink connects need other pods' too.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.embedded import parse_cluster
from tests.cluster.control.api import ApiError
from tests.cluster.control.decision_log import assert_replays
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.fleet.workload import make_pod, pod_path

pytestmark = pytest.mark.cluster

DGX = parse_cluster("1x dgx-1-v100")
APART = (0, 1, 6, 7)
NVLINK = {"coterie.gpu/affinity": "nvlink", "coterie.gpu/policy": "required"}
PRIORITIES = {"low": 10, "middle": 20, "high": 1000}
A_WHILE_S = 3.0
"""Long enough for a pod to be evicted or placed if it could be."""
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
HELD = "coterie.test/held"
"""A finalizer: the pod is leaving, and stays until the finalizer is removed."""


@pytest.fixture(scope="module")
def cast(control_plane, tmp_path_factory):
    """Extender and scheduler; what they decided gives the same answers again."""
    log = tmp_path_factory.mktemp("decisions") / "log.jsonl"
    made = start_cast(control_plane, decision_log=log)
    yield made
    made.stop()
    assert_replays(log)


async def make_priorities(api):
    """Create the priority classes; they outlive a play."""
    for name, value in PRIORITIES.items():
        content = {"metadata": {"name": name}, "value": value}
        try:
            await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", content)
        except ApiError as error:
            if error.status != 409:
                raise


def prioritized(name, gpus, priority, **fields):
    """A pod of a priority class."""
    return make_pod(name, gpus, spec={"priorityClassName": priority}, **fields)


def devices(pod):
    """The ids of its plan."""
    return [one for container in json.loads(pod.plan)["containers"] for one in container["ids"]]


class Seats:
    """One pod of priority `middle` on each GPU, but for some GPUs of another priority."""

    def __init__(self, played):
        self._played = played
        self.ids = played.nodes[0].ids
        self.names = {}

    async def take(self, priority, gpus):
        """Seat a pod on each of these GPUs, which must be the free ones."""
        names = [f"{priority}-{gpu}" for gpu in gpus]
        for name in names:
            await self._played.create(prioritized(name, 1, priority))
        for pod in await self._played.bound(*names):
            self.names[self.ids.index(devices(pod)[0])] = pod.name

    async def change(self, priority, gpus):
        """Replace the pods on these GPUs by others."""
        await self._played.delete(*(self.names[gpu] for gpu in gpus))
        await self.take(priority, gpus)

    @property
    def left(self):
        """The GPUs whose pods are still there, and not on their way out."""
        return {
            gpu
            for gpu, name in self.names.items()
            if self._played.has(name) and not self._played.pod(name).is_deleting
        }


async def seat(played, **others):
    """Fill the node: `low=(0, 1)` seats pods of priority low on GPUs 0 and 1."""
    await make_priorities(played.api)
    seats = Seats(played)
    await seats.take("middle", range(len(seats.ids)))
    for priority, gpus in others.items():
        await seats.change(priority, gpus)
    return seats


def gpus_of(seats, pod):
    """The GPUs of its plan."""
    return {seats.ids.index(one) for one in devices(pod)}


def is_connected(played, seats, gpus, pod):
    """Whether these GPUs hold a set that satisfies the pod."""
    ids = [seats.ids[gpu] for gpu in gpus]
    return bool(played.judge.best(played.nodes[0].name, ids, pod))


def test_those_leave_whose_gpus_the_pod_can_use(cast):
    """The pod starts on the GPUs of its victims: three of the cheapest, and one that links them."""

    async def main():
        async with play(cast, DGX) as played:
            seats = await seat(played, low=APART)
            await played.create(prioritized("urgent", 4, "high", annotations=NVLINK))
            (urgent,) = await played.bound("urgent")
            assert not is_connected(played, seats, APART, urgent)
            taken = set(range(8)) - seats.left
            assert gpus_of(seats, urgent) == taken
            assert len(taken & set(APART)) == 3
            assert len(taken) == 4

    asyncio.run(main())


def test_a_disruption_budget_is_respected_where_other_victims_are_enough(cast):
    """Of those who could link the cheap GPUs, only one may be disturbed."""

    async def main():
        async with play(cast, DGX) as played:
            seats = await seat(played, low=APART)
            guarded = {"guarded": "yes"}
            for gpu in (2, 3, 5):
                path = pod_path(seats.names[gpu])
                await played.api.patch(path, {"metadata": {"labels": guarded}})
            budget = {"minAvailable": 3, "selector": {"matchLabels": guarded}}
            await played.api.create(BUDGETS, {"metadata": {"name": "guard"}, "spec": budget})
            try:
                await played.create(prioritized("urgent", 4, "high", annotations=NVLINK))
                (urgent,) = await played.bound("urgent")
            finally:
                await played.api.delete(f"{BUDGETS}/guard")
            assert seats.left >= {2, 3, 5}
            assert gpus_of(seats, urgent) == set(range(8)) - seats.left
            assert 4 not in seats.left

    asyncio.run(main())


def test_no_pod_of_equal_priority_is_evicted(cast):
    """The pod waits, for the scheduler's victims would die for nothing; one GPU more is enough."""

    async def main():
        async with play(cast, DGX) as played:
            seats = await seat(played, low=APART, high=(2, 3, 4, 5))
            await played.create(prioritized("urgent", 4, "high", annotations=NVLINK))
            await played.refused("urgent")
            await asyncio.sleep(A_WHILE_S)
            assert played.pod("urgent").node is None
            assert seats.left == set(range(8))
            await played.delete(seats.names[3])
            (urgent,) = await played.bound("urgent")
            assert gpus_of(seats, urgent) == set(range(8)) - seats.left
            assert seats.left >= {2, 4, 5}

    asyncio.run(main())


async def let_go(played, *names):
    """Take the finalizer off, so that a leaving pod is gone."""
    for name in names:
        if played.has(name):
            await played.api.patch(pod_path(name), {"metadata": {"finalizers": None}})


def test_the_place_is_kept_until_the_last_victim_has_left(cast):
    """Small pods of low priority wait for every GPU that comes free, and get none of the set.

    Beside the victims a fifth pod leaves, so that one GPU is more than the pod needs. The small
    pods get that one and no other.
    """

    async def main():
        async with play(cast, DGX) as played:
            seats = await seat(played, low=APART)
            try:
                for name in seats.names.values():
                    await played.api.patch(pod_path(name), {"metadata": {"finalizers": [HELD]}})
                await played.create(prioritized("urgent", 4, "high", annotations=NVLINK))
                await played.until(lambda: len(seats.left) == 4)
                leaving = [seats.names[gpu] for gpu in set(range(8)) - seats.left]
                smalls = [f"small-{i}" for i in range(6)]
                for name in smalls:
                    await played.create(prioritized(name, 1, "low"))
                for name in smalls:
                    await played.refused(name)
                extra = seats.names[min(seats.left)]
                await played.api.delete(pod_path(extra), grace_s=30)
                await let_go(played, extra)
                await played.gone(extra)
                for number, name in enumerate(leaving, 1):
                    await let_go(played, name)
                    await played.gone(name)
                    if number < len(leaving):
                        await asyncio.sleep(A_WHILE_S / 3)
                        assert not any(played.pod(one).node for one in smalls)
                (urgent,) = await played.bound("urgent")
                assert is_connected(played, seats, gpus_of(seats, urgent), urgent)
                assert len(seats.left) == 3
                await played.until(lambda: sum(played.pod(s).node is not None for s in smalls) == 1)
            finally:
                await let_go(played, *seats.names.values())

    asyncio.run(main())
