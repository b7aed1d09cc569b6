"""Single pods fill one leaf, and a group finds the other one whole."""

from __future__ import annotations

import asyncio

import pytest

from extender.embedded.spec import ClusterSpec, NodeGroup
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster

LEAF = "network.topology.nvidia.com/leaf"
LARGE, SMALL = "dgx-h100", "hgx-h200"
N_LARGE, N_SMALL = 6, 4
NODES = ClusterSpec(
    groups=[
        NodeGroup(count=count, machine=machine, labels={LEAF: machine})
        for machine, count in ((LARGE, N_LARGE), (SMALL, N_SMALL))
    ],
    zones=["zone-a"],
)
"""Two leaves, whose machines are equal for a pod of 8 GPUs where their GPUs are worth the same."""


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler."""
    made = start_cast(control_plane, environment={"COTERIE_EXTENDER_GPU_WORTH": "H[12]00=1"})
    yield made
    made.stop()


def test_single_pods_fill_one_leaf(cast):
    """kube-scheduler takes nodes of the smaller leaf while it has one, then of the other."""

    async def main():
        async with play(cast, NODES) as played:
            nodes = []
            for number in range(N_SMALL):
                await played.create(make_pod(f"single-{number}", 8))
                await played.bound(f"single-{number}")
                nodes.append(str(played.pod(f"single-{number}").node))
            assert {node.rpartition("-")[0] for node in nodes} == {SMALL}
            wishes = {
                "coterie.gpu/group": "whole",
                "coterie.gpu/group-size": str(N_LARGE),
                "coterie.gpu/group-domain": "leaf",
                "coterie.gpu/group-policy": "required",
            }
            members = [f"whole-{number}" for number in range(N_LARGE)]
            for name in members:
                await played.create(make_pod(name, 8, annotations=wishes))
            await played.bound(*members)
            assert {str(played.pod(name).node).rpartition("-")[0] for name in members} == {LARGE}

    asyncio.run(main())
