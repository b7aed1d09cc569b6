"""A node that serves whole GPUs and MIG profiles, and kube-scheduler with pods of both."""

from __future__ import annotations

import asyncio

import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.stage import SOON_S, play, start_cast
from tests.cluster.fleet.workload import RESOURCE, make_pod

pytestmark = pytest.mark.cluster

DGX = parse_cluster("1x dgx-1-v100")
MIG = "nvidia.com/mig-1g.10gb"
N_PARTITIONS = 3


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler, which both know of the partitions."""

    def manage(config):
        (extender,) = config["extenders"]
        extender["managedResources"].append({"name": MIG, "ignoredByScheduler": False})

    made = start_cast(control_plane, "--resources", f"{RESOURCE},{MIG}", change=manage)
    yield made
    made.stop()


def partitions(name, count):
    """A pod of partitions."""
    wish = {MIG: str(count)}
    main = {"name": "main", "image": "none", "resources": {"limits": wish, "requests": wish}}
    return make_pod(name, containers=[main])


def test_pods_of_both_resources_share_a_node(cast):
    """Only the first resource was served: pods of partitions waited for ever."""

    async def n_free(node):
        answer = await asyncio.to_thread(cast.extender.get, "/state/nodes")
        shown = answer.json()["nodes"][node]
        return [len(one["free"]) for one in (shown, *shown["other_resources"])]

    async def main():
        async with play(cast, DGX) as played:
            (node,) = played.nodes
            counts = {MIG: str(N_PARTITIONS)}
            status = {"status": {"capacity": counts, "allocatable": counts}}
            await played.api.patch(f"{node_path(node.name)}/status", status)
            async with asyncio.timeout(SOON_S):
                while await n_free(node.name) != [8, N_PARTITIONS]:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.1)
            await played.create(make_pod("whole", 8))
            await played.create(partitions("small", 2))
            whole, small = await played.bound("whole", "small")
            assert (whole.plan is None, small.plan) == (False, None)
            assert await n_free(node.name) == [0, 1]
            await played.create(partitions("waits", 2))
            await played.refused("waits")
            await played.delete("small")
            await played.bound("waits")
            assert await n_free(node.name) == [0, 1]

    asyncio.run(main())
