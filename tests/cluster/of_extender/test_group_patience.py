"""A group of several nodes beside small pods that keep coming, on the real scheduler."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.stage import SOON_S, play, stand_by, start_cast
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster

FOUR = parse_cluster("4x dgx-h100")
PATIENCE_S = 3.0
MEMBERS = ("g-0", "g-1")
N_WAITING = 16
"""Small pods without a node at any time, so that one takes what comes free."""


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler, without patience."""
    made = start_cast(control_plane)
    yield made
    made.stop()


def is_bound(played, name):
    """Whether etcd has the pod with a node."""
    return played.has(name) and played.pod(name).node is not None


class Small:
    """Pods of half a node that run for one to four seconds, each for another time, and then go.

    `nodes` are those of all that ever had one, in that order.
    """

    def __init__(self, played):
        self.played = played
        self.names = []
        self.nodes = {}

    def look(self):
        """How many have had a node."""
        for name in self.names:
            if is_bound(self.played, name):
                self.nodes.setdefault(name, self.played.pod(name).node)
        return len(self.nodes)

    async def come(self):
        """Create one whenever fewer wait than should; until cancelled."""
        while True:
            while len(self.names) - self.look() < N_WAITING:
                number = len(self.names)
                name = f"small-{number}"
                await self.played.create(make_pod(name, 4, runs_s=1.0 + number * 0.7 % 3.0))
                self.names.append(name)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def loaded(cast):
    """A cluster on which small pods have all GPUs and more wait, and a group of two whole nodes."""
    async with play(cast, FOUR) as played:
        small = Small(played)
        coming = asyncio.create_task(small.come())
        try:
            await played.until(lambda: small.look() >= 8)
            wishes = {"coterie.gpu/group": "g", "coterie.gpu/group-size": "2"}
            for name in MEMBERS:
                await played.create(make_pod(name, 8, annotations=wishes, runs_s=2.0))
            yield played, small
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def test_a_group_starves_beside_small_pods(cast):
    """Whole nodes never come free at once: three times as many small pods as fit are bound."""

    async def main():
        async with loaded(cast) as (played, small):
            n_before = small.look()
            await played.until(lambda: small.look() >= n_before + 24)
            assert not any(is_bound(played, name) for name in MEMBERS)

    asyncio.run(main())


def test_with_patience_it_is_placed_and_the_small_pods_go_on(cast):
    """Nodes are reserved, two come free, and afterwards small pods run there again."""

    async def main():
        async with (
            stand_by(cast, "--group-patience-s", str(PATIENCE_S)) as patient,
            loaded(patient) as (played, small),
        ):
            found = await played.bound(*MEMBERS)
            nodes = {one.node for one in found}
            assert len(nodes) == 2
            n_before = small.look()
            await played.until(lambda: nodes <= {*list(small.nodes.values())[n_before:]})
            metrics = patient.extender.get("/metrics").text
            assert "coterie_extender_reserved_nodes 0.0" in metrics

    asyncio.run(main())


def test_full_nodes_that_are_cordoned_are_not_reserved(cast):
    """Twice the group's nodes would be all four; two of them take no new pod."""

    async def main():
        async with (
            stand_by(cast, "--group-patience-s", str(PATIENCE_S)) as patient,
            play(patient, FOUR) as played,
        ):
            for number in range(4):
                await played.create(make_pod(f"full-{number}", 8))
            full = await played.bound(*(f"full-{number}" for number in range(4)))
            for name in (one.node for one in full[:2]):
                assert name is not None
                await played.api.patch(node_path(name), {"spec": {"unschedulable": True}})
            wishes = {"coterie.gpu/group": "g", "coterie.gpu/group-size": "2"}
            for name in MEMBERS:
                await played.create(make_pod(name, 8, annotations=wishes))

            def reserved():
                group = patient.extender.get("/explain/default/g-0").json()["group"]
                return group and group["reserved"]

            async with asyncio.timeout(SOON_S):
                while (found := await asyncio.to_thread(reserved)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            assert {*found["nodes"]} == {one.node for one in full[2:]}

    asyncio.run(main())
