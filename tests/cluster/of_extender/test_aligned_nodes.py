"""Nodes whose plugin reports a Topology Manager policy: plans, refusals and what a change does."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.embedded import ClusterSpec
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.fleet.stand_in import set_devices_report
from tests.cluster.fleet.workload import make_pod
from topology.annotations import DevicesReport, TopologyManagerPolicy

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler."""
    made = start_cast(control_plane)
    yield made
    made.stop()


def aligned(policy, scope="container"):
    """One DGX-1: GPUs 0..3 on NUMA node 0, the others on 1."""
    group = {"count": 1, "machine": "dgx-1-v100", "topology_manager_policy": policy}
    return ClusterSpec.model_validate({"groups": [group | {"topology_manager_scope": scope}]})


def numa_nodes(played, pod):
    """The NUMA nodes of a pod's plan."""
    (node,) = played.nodes
    (container,) = json.loads(pod.plan)["containers"]
    return {node.topology.gpus[node.ids.index(one)].numa_node for one in container["ids"]}


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_plans_lie_where_the_kubelet_will_take_them(cast, policy):
    """The lowest NUMA node that has room, whichever has the better set."""

    async def main():
        async with play(cast, aligned(policy)) as played:
            for name, gpus, expected in (("a", 1, {0}), ("b", 4, {1}), ("c", 2, {0})):
                await played.create(make_pod(name, gpus))
                (pod,) = await played.bound(name)
                assert numa_nodes(played, pod) == expected

    asyncio.run(main())


def test_a_pod_waits_until_its_node_aligns_no_more(cast):
    """Two free GPUs on two NUMA nodes would fail it for good; the user reads why."""

    async def main():
        async with play(cast, aligned("restricted")) as played:
            for name in ("a", "b"):
                await played.create(make_pod(name, 3))
                await played.bound(name)
            await played.create(make_pod("waiting", 2))
            reason = "the kubelet's Topology Manager would refuse the pod"
            assert reason in await played.refused("waiting")
            (node,) = played.nodes
            report = DevicesReport(generation=2, policy=TopologyManagerPolicy.NONE)
            await set_devices_report(played.api, node.name, report)
            (pod,) = await played.bound("waiting")
            assert numa_nodes(played, pod) == {0, 1}

    asyncio.run(main())


def test_a_pod_that_no_state_of_the_node_admits_gets_that_reason(cast):
    """Six GPUs never lie on one NUMA node: the user reads that waiting is no use."""

    async def main():
        async with play(cast, aligned("single-numa-node", "pod")) as played:
            await played.create(make_pod("never", 6))
            reason = "never on this node: the kubelet's Topology Manager admits no GPU set"
            assert reason in await played.refused("never")

    asyncio.run(main())
