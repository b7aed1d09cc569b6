"""What the tests' own nodes, pods and judge are worth: as real as they claim, and repeatable."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.embedded import (
    ClusterSpec,
)
from extender.embedded.spec import NodeGroup
from tests.cluster.control.api import open_api
from tests.cluster.fleet.checker import Checker, FaultKind, Follower
from tests.cluster.fleet.nodes import create_nodes
from tests.cluster.fleet.workload import PODS, make_pod, pod_path

pytestmark = [pytest.mark.cluster, pytest.mark.own_plane]

LONE = ClusterSpec(groups=[NodeGroup(count=1, machine="summit", name="lone")])


def binding(name, node, ids):
    """A Binding with a plan, as any client can write it where no policy forbids it."""
    container = {"name": "main", "resource": "nvidia.com/gpu", "ids": ids}
    plan = {"v": 1, "node": node, "containers": [container], "generation": 0, "score": 0}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {"coterie.gpu/plan": json.dumps(plan)}},
        "target": {"kind": "Node", "name": node},
    }


def test_the_checker_finds_broken_promises_on_a_real_cluster(control_plane):
    """Bound by hand: a device given twice, a plan that is missing, one for another size."""

    async def main():
        checker = Checker()
        async with (
            open_api(control_plane.admin) as api,
            Follower(control_plane.etcd_url, checker) as follower,
        ):
            (node,) = await create_nodes(api, LONE)
            first, second, third, *_ = node.ids
            for name, gpus, ids in (
                ("good", 2, [first, second]),
                ("twice", 2, [second, third]),
                ("few", 2, [third]),
            ):
                await api.create(PODS, make_pod(name, gpus, scheduler="absent-scheduler"))
                await api.create(f"{pod_path(name)}/binding", binding(name, node.name, ids))
            await follower.catch_up()
            for name in ("good", "twice", "few"):
                await api.delete(pod_path(name), grace_s=0)
        found = [(fault.kind, fault.pod) for fault in checker.faults]
        assert found[0] == (FaultKind.OVERLAP, "default/twice")
        assert set(found[1:]) == {
            (FaultKind.WRONG_SIZE, "default/few"),
            (FaultKind.OVERLAP, "default/few"),
        }

    asyncio.run(main())
