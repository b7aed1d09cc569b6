"""Pods that have to wait: what their user reads, when they start, and who is not to be harmed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from aiohttp import web

from extender.embedded import parse_cluster
from tests.cluster.control.proxy import open_proxy, write_kubeconfig
from tests.cluster.fleet.nodes import ZONE, set_node_gpus
from tests.cluster.fleet.stage import EXTENDER_USER, SOON_S, play, stand_by, start_cast
from tests.cluster.fleet.stand_in import set_devices_report
from tests.cluster.fleet.workload import RESOURCE, make_pod, pod_path
from topology.annotations import DevicesReport, UnhealthyDevice

pytestmark = pytest.mark.cluster

DGX = parse_cluster("1x dgx-1-v100")
PAIRS = parse_cluster("1x 8x-h100-pcie-pairs")
A_WHILE_S = 3.0
"""Long enough for a pod to be placed if it could be."""
NUMA = {"coterie.gpu/affinity": "numa", "coterie.gpu/policy": "required"}
FAST = {"coterie.gpu/min-bandwidth": "200"}
RETRY = "coterie.gpu/retry"


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler."""
    made = start_cast(control_plane)
    yield made
    made.stop()


async def described(cast, name, text):
    """Wait until `kubectl describe pod` shows a user this: Events come after the condition."""
    async with asyncio.timeout(SOON_S):
        while True:
            shown = await asyncio.to_thread(cast.control_plane.kubectl, "describe", "pod", name)
            if "FailedScheduling" in shown and text in shown:
                return
            await asyncio.sleep(0.2)


def n_filtered(cast, pod):
    """How often filter was asked for a pod, as the extender's log says."""
    calls = [one for one in cast.extender.events("answered") if one.get("verb") == "filter"]
    return sum(one.get("pod") == f"default/{pod}" for one in calls)


async def fill(played):
    """Take every GPU of the one node by a pod of its own; the pods' names in device order."""
    (node,) = played.nodes
    names = [f"single-{i}" for i in range(len(node.ids))]
    for name in names:
        await played.create(make_pod(name, 1))
    holders = {}
    for pod in await played.bound(*names):
        (container,) = json.loads(pod.plan)["containers"]
        holders[container["ids"][0]] = pod.name
    return [holders[one] for one in node.ids]


@pytest.mark.parametrize(
    ("spec", "gpus", "wishes", "enough", "missing", "reason"),
    [
        pytest.param(
            DGX,
            4,
            NUMA,
            (0, 1, 4, 5),
            (2, 3),
            "no free GPU set has the required affinity",
            id="four GPUs are free, two on each NUMA node",
        ),
        pytest.param(
            PAIRS,
            2,
            FAST,
            (0, 2, 4, 6),
            (1,),
            "no free GPU set reaches the minimum bandwidth",
            id="four GPUs are free, one of each NVLink pair",
        ),
    ],
)
def test_a_pod_waits_readably_and_starts_when_its_set_frees(
    cast, spec, gpus, wishes, enough, missing, reason
):
    """GPUs alone are not enough; the user reads why, and the pod starts as soon as it can."""

    async def main():
        async with play(cast, spec) as played:
            holders = await fill(played)
            await played.delete(*(holders[i] for i in enough))
            await played.has_free(played.nodes[0].name, len(enough))
            await played.create(make_pod("waiting", gpus, annotations=wishes))
            assert reason in await played.refused("waiting")
            await described(cast, "waiting", reason)
            await asyncio.sleep(A_WHILE_S)
            assert played.pod("waiting").node is None
            await played.delete(*(holders[i] for i in missing))
            await played.bound("waiting")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("gpus", "wishes", "reason"),
    [
        pytest.param(
            8,
            NUMA,
            "never on this node: no GPU set of that size has the required affinity",
            id="eight GPUs on one NUMA node of four",
        ),
        pytest.param(
            4,
            {"coterie.gpu/min-bandwidth": "4000"},
            "never on this node: no GPU set of that size reaches the minimum bandwidth",
            id="more than any NVLink carries",
        ),
        pytest.param(
            16, {}, "Insufficient nvidia.com/gpu", id="more GPUs than any node has: not for us"
        ),
    ],
)
def test_a_request_that_no_node_can_satisfy_gets_its_reason(cast, gpus, wishes, reason):
    """A user who requests the impossible reads it in `kubectl describe pod`."""

    async def main():
        async with play(cast, DGX) as played:
            await played.create(make_pod("never", gpus, annotations=wishes))
            assert reason in await played.refused("never")
            await described(cast, "never", reason)

    asyncio.run(main())


def test_a_pod_that_would_stay_unschedulable_for_five_minutes_starts_at_once(cast, tmp_path):
    """The scheduler sees the freed GPUs before the extender does, calls filter, and does not retry.

    Nothing else happens in the cluster that could make it retry: the extender has to requeue it.
    """

    async def main():
        async with open_proxy(cast.control_plane.kubeconfig(EXTENDER_USER), seed=1) as proxy:
            kubeconfig = tmp_path / "proxied.kubeconfig"
            write_kubeconfig(proxy, kubeconfig)
            async with (
                stand_by(cast, kubeconfig=kubeconfig) as lagging,
                play(lagging, DGX, has_stand_in=False) as played,
            ):
                holders = await fill(played)
                await played.delete(*(holders[i] for i in (0, 1, 4, 5)))
                await played.has_free(played.nodes[0].name, 4)
                await played.create(make_pod("waiting", 4, annotations=NUMA))
                await played.refused("waiting")
                with proxy.stalled():
                    n_calls = n_filtered(lagging, "waiting")
                    await played.delete(*(holders[i] for i in (2, 3)))
                    async with asyncio.timeout(SOON_S):
                        while n_filtered(lagging, "waiting") == n_calls:  # noqa: ASYNC110 - a log
                            await asyncio.sleep(0.1)
                    await asyncio.sleep(A_WHILE_S)
                    assert played.pod("waiting").node is None
                await played.bound("waiting")
                pod = await played.api.get(pod_path("waiting"))
                assert RETRY in pod["metadata"]["annotations"]

    asyncio.run(main())


def test_a_pod_starts_when_a_bad_gpu_is_well_again(cast):
    """A node's report counts as much as a pod's end."""

    async def main():
        async with play(cast, DGX) as played:
            (node,) = played.nodes
            bad = (UnhealthyDevice(node.ids[3], "XID 79"),)
            await set_devices_report(
                played.api, node.name, DevicesReport(generation=1, unhealthy=bad)
            )
            await played.has_free(node.name, 7)
            await played.create(make_pod("all", 8))
            assert "not enough free GPUs" in await played.refused("all")
            await set_devices_report(played.api, node.name, DevicesReport(generation=2))
            await played.bound("all")

    asyncio.run(main())


def test_a_node_whose_kubelet_lost_the_resource_gets_no_pod(cast):
    """It would run there without any device; when the plugin is back, the pod starts."""

    async def main():
        async with play(cast, DGX) as played:
            (node,) = played.nodes
            await set_node_gpus(played.api, node.name, RESOURCE, 0)
            await played.has_free(node.name, 0)
            await played.create(make_pod("patient", 1))
            assert "Insufficient nvidia.com/gpu" in await played.refused("patient")
            await set_node_gpus(played.api, node.name, RESOURCE, 8)
            await played.bound("patient")

    asyncio.run(main())


DRA = "/apis/resource.k8s.io/v1"


async def serve_through_dra(api, node):
    """Let a node offer the resource through DRA: a device class of that name, and a slice."""
    group = {"apiVersion": "resource.k8s.io/v1"}
    await api.create(
        f"{DRA}/deviceclasses",
        group
        | {
            "kind": "DeviceClass",
            "metadata": {"name": "gpus"},
            "spec": {"extendedResourceName": RESOURCE},
        },
    )
    await api.create(
        f"{DRA}/resourceslices",
        group
        | {
            "kind": "ResourceSlice",
            "metadata": {"name": "gpus"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"gpu-{i}"} for i in range(8)],
            },
        },
    )


def test_a_node_that_serves_the_resource_through_dra_is_refused(cast):
    """Its driver chooses the devices; a plan of ours would be about others."""
    two = parse_cluster("2x dgx-1-v100")

    async def main():
        async with play(cast, two) as played:
            through_dra, through_plugin = (node.name for node in played.nodes)
            await set_node_gpus(played.api, through_dra, RESOURCE, 0)
            await set_node_gpus(played.api, through_plugin, RESOURCE, 4)
            try:
                await serve_through_dra(played.api, through_dra)
                await played.create(make_pod("first", 4))
                (first,) = await played.bound("first")
                assert first.node == through_plugin
                await played.create(make_pod("second", 4))
                reported = await played.refused("second")
                # Without the DRAExtendedResource gate the scheduler does not call the extender.
                assert "does not serve" in reported or "2 Insufficient nvidia.com/gpu" in reported
            finally:
                await played.api.delete(f"{DRA}/deviceclasses/gpus")
                await played.api.delete(f"{DRA}/resourceslices/gpus")

    asyncio.run(main())


THIRTY = parse_cluster("30x dgx-1-v100")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(
            {
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": ZONE,
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"app": "spread"}},
                    }
                ]
            },
            id="a soft spread sees every node",
        ),
        pytest.param(
            {
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": ZONE,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "spread"}},
                    }
                ]
            },
            id="a hard spread is kept, zone by zone",
        ),
    ],
)
def test_spreading_over_zones_is_not_harmed_by_the_candidate_limit(cast, spec):
    """Twelve pods that fill a node each, three zones: four in each, however few are named."""

    async def main():
        async with (
            stand_by(cast, "--candidate-limit", "4") as strict,
            play(strict, THIRTY) as played,
        ):
            names = [f"spread-{i}" for i in range(12)]
            for name in names:
                pod = make_pod(name, 8, spec=spec)
                pod["metadata"]["labels"] = {"app": "spread"}
                await played.create(pod)
            zones = {node.name: node.zone for node in played.nodes}
            found = Counter(zones[pod.node or ""] for pod in await played.bound(*names))
            assert sorted(found.values()) == [4, 4, 4]

    asyncio.run(main())


def test_a_later_extender_sees_every_node_where_the_limit_is_off(cast):
    """`candidate_limit: 0` is for clusters in which another filter follows; it wants one node."""
    requested = []

    async def answer(request):
        arguments = await request.json()
        requested.append(arguments["NodeNames"])
        names = [name for name in arguments["NodeNames"] if name == "dgx-1-v100-17"]
        return web.json_response({"NodeNames": names, "FailedNodes": {}, "Error": ""})

    async def main():
        app = web.Application()
        app.router.add_post("/filter", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        later = {
            "urlPrefix": f"http://127.0.0.1:{runner.addresses[0][1]}",
            "filterVerb": "filter",
            "nodeCacheCapable": True,
            "managedResources": [],
        }
        try:
            async with (
                stand_by(
                    cast,
                    *("--candidate-limit", "0"),
                    change=lambda config: config["extenders"].append(later),
                ) as choosy,
                play(choosy, THIRTY) as played,
            ):
                await played.create(make_pod("picky", 1))
                (pod,) = await played.bound("picky")
                assert pod.node == "dgx-1-v100-17"
                assert len(requested[0]) == 30
        finally:
            await runner.cleanup()

    asyncio.run(main())
