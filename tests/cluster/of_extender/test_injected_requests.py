"""A request for GPUs that admission adds to a pod: its metadata do not show it."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.stage import SOON_S, play, start_cast
from tests.cluster.fleet.workload import PODS, RESOURCE, make_pod, pod_path

pytestmark = pytest.mark.cluster

DGX = parse_cluster("1x dgx-1-v100")
LIMIT_RANGES = "/api/v1/namespaces/default/limitranges"
THREE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "three-gpus"},
    "spec": {
        "limits": [
            {
                "type": "Container",
                "default": {RESOURCE: "3"},
                "defaultRequest": {RESOURCE: "3"},
            }
        ]
    },
}


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler."""
    made = start_cast(control_plane)
    yield made
    made.stop()


async def is_injected(api):
    """Whether a pod that is created now gets the request, as a dry run says."""
    made = await api.call("POST", PODS, make_pod("tried"), dryRun="All")
    (container,) = made["spec"]["containers"]
    return RESOURCE in container.get("resources", {}).get("limits", {})


def test_a_request_that_a_limit_range_added_is_counted(cast):
    """Placed by others and without a plan: it has three of the node's GPUs all the same."""

    async def devices_unknown(node):
        answer = await asyncio.to_thread(cast.extender.get, "/state/nodes")
        return answer.json()["nodes"][node]["devices_unknown"]

    async def main():
        async with play(cast, DGX, has_stand_in=False) as played:
            (node,) = played.nodes
            await played.api.create(LIMIT_RANGES, THREE)
            try:
                # Admission has the LimitRange from a watch, and remembers a while that none was.
                async with asyncio.timeout(SOON_S):
                    while not await is_injected(played.api):  # noqa: ASYNC110 - there is no event
                        await asyncio.sleep(0.1)
                uid = await played.create(make_pod("injected", spec={"nodeName": node.name}))
            finally:
                await played.api.delete(f"{LIMIT_RANGES}/three-gpus")
            pod = await played.api.get(pod_path("injected"))
            (container,) = pod["spec"]["containers"]
            assert container["resources"]["limits"][RESOURCE] == "3"
            assert RESOURCE not in json.dumps(pod["metadata"]["managedFields"])
            async with asyncio.timeout(SOON_S):
                while not await devices_unknown(node.name):  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.1)
            assert await devices_unknown(node.name) == [
                {"pod": "default/injected", "pod_uid": uid, "devices": 3}
            ]

    asyncio.run(main())
