"""Bindings that race: with each other, with deletions, with a node's end, with gates."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from copy import deepcopy

import httpx
import pytest

from extender.embedded import node_manifest, parse_cluster
from tests.cluster.control.proxy import open_proxy, write_kubeconfig
from tests.cluster.fleet.checker import FaultKind
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.stage import EXTENDER_USER, play, stand_by, start_cast
from tests.cluster.fleet.workload import SCHEDULER, Mix, arrivals, make_pod, pod_path, submit

pytestmark = pytest.mark.cluster

SMALL = parse_cluster("6x dgx-a100, 4x dgx-1-v100, 2x summit")
ONE = parse_cluster("1x dgx-a100")
TWO = parse_cluster("2x dgx-a100")
WITHIN_S = 180
OTHER_SCHEDULER = "second-scheduler"


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler; the extender takes pods of two other schedulers too."""
    made = start_cast(control_plane, "--scheduler-names", f"{OTHER_SCHEDULER},absent-scheduler")
    yield made
    made.stop()


def planned(pod):
    """The ids of a pod's plan."""
    plan = json.loads(pod.plan or "{}")
    return {one for container in plan["containers"] for one in container["ids"]}


async def bind(cast, name, uid, node):
    """Call bind as kube-scheduler would; the error, or an empty text."""
    body = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}
    async with httpx.AsyncClient(trust_env=False) as scheduler:
        answer = await scheduler.post(f"{cast.extender.url}/bind", json=body, timeout=30)
    assert answer.status_code == httpx.codes.OK
    return answer.json()["Error"]


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(SCHEDULER, id="both think that every pod is theirs"),
        pytest.param(OTHER_SCHEDULER, id="each has its own pods, neither sees the other's"),
    ],
)
def test_two_schedulers_bind_through_one_extender(cast, profile):
    """Each pod is bound once, each device is given once, and every pod gets there in the end."""
    config = deepcopy(cast.config)
    config["profiles"] = [{"schedulerName": profile, "percentageOfNodesToScore": 100}]
    second = cast.control_plane.start_scheduler(config, name="second-scheduler")
    stream = arrivals(Mix(n_pods=150, pods_per_s=60, mean_run_s=1.5, seed=3, without_gpu=0))
    if profile != SCHEDULER:
        for one in stream[::2]:
            one.manifest["spec"]["schedulerName"] = profile

    async def main():
        async with play(cast, SMALL) as played:
            await asyncio.gather(
                submit(played.api, stream),
                played.until(
                    lambda: played.checker.n_bound == len(stream) and not played.checker.pods,
                    within_s=WITHIN_S,
                ),
            )

    try:
        asyncio.run(main())
    finally:
        second.stop()


@asynccontextmanager
async def proxied(cast, folder, spec):
    """A play whose extender speaks to the API server through a proxy."""
    async with open_proxy(cast.control_plane.kubeconfig(EXTENDER_USER), seed=1) as proxy:
        kubeconfig = folder / "proxied.kubeconfig"
        write_kubeconfig(proxy, kubeconfig)
        async with stand_by(cast, kubeconfig=kubeconfig) as other, play(other, spec) as played:
            yield played, proxy


def test_a_pod_that_is_recreated_during_bind_gets_its_own_plan(cast, tmp_path):
    """The binding names the old pod's uid, so that it cannot hit the new one of the same name."""

    async def main():
        async with proxied(cast, tmp_path, ONE) as (played, proxy):
            with proxy.held("/binding") as hold:
                old = await played.create(make_pod("same", 8))
                await asyncio.wait_for(hold.came.wait(), WITHIN_S)
                await played.delete("same")
                new = await played.create(make_pod("same", 4))
                hold.release()
            (pod,) = await played.bound("same")
            assert old != new == pod.uid
            assert len(planned(pod)) == 4
            # What was assumed for the old pod is free again.
            await played.create(make_pod("beside", 4))
            await played.bound("beside")

    asyncio.run(main())


def test_a_pod_that_is_deleted_during_bind_leaves_nothing_behind(cast, tmp_path):
    """Its devices were only assumed."""

    async def main():
        async with proxied(cast, tmp_path, ONE) as (played, proxy):
            with proxy.held("/binding") as hold:
                await played.create(make_pod("gone", 8))
                await asyncio.wait_for(hold.came.wait(), WITHIN_S)
                await played.delete("gone")
            await played.create(make_pod("next", 8))
            await played.bound("next")

    asyncio.run(main())


def test_a_pod_whose_gpus_change_hands_by_name_only_is_not_confused(cast, tmp_path):
    """Deleted right after its binding, before the watch shows it, and recreated."""

    async def main():
        async with proxied(cast, tmp_path, ONE) as (played, proxy):
            with proxy.stalled():
                await played.create(make_pod("same", 8))
                (old,) = await played.bound("same")
                await played.delete("same")
                new = await played.create(make_pod("same", 8))
            (pod,) = await played.bound("same")
            assert old.uid != new == pod.uid

    asyncio.run(main())


def test_a_node_that_is_recreated_during_bind_keeps_its_plans(cast, tmp_path):
    """The pod was bound to the name; its devices are the same machine's."""

    async def main():
        async with proxied(cast, tmp_path, ONE) as (played, proxy):
            played.allowed = {FaultKind.UNKNOWN_NODE}  # the API server lets it happen
            (node,) = played.nodes
            with proxy.held("/binding") as hold:
                await played.create(make_pod("first", 4))
                await asyncio.wait_for(hold.came.wait(), WITHIN_S)
                await played.api.delete(node_path(node.name))
                await played.until(lambda: not played.checker.nodes)
            (first,) = await played.bound("first")
            await played.api.create("/api/v1/nodes", node_manifest(node))
            await played.create(make_pod("second", 4))
            (second,) = await played.bound("second")
            assert planned(first).isdisjoint(planned(second))
            assert len(planned(first) | planned(second)) == 8

    asyncio.run(main())


def test_a_node_that_went_before_bind_is_refused(cast):
    """The scheduler's choice can be older than what the extender knows."""

    async def main():
        async with play(cast, TWO) as played:
            uid = await played.create(make_pod("late", 8, scheduler="absent-scheduler"))
            gone, stays = (node.name for node in played.nodes)
            await played.api.delete(node_path(gone))
            await played.known([stays])
            assert gone in await bind(cast, "late", uid, gone)
            assert await bind(cast, "late", uid, stays) == ""
            (pod,) = await played.bound("late")
            assert pod.node == stays
            # Called again, as by a scheduler whose call timed out.
            assert await bind(cast, "late", uid, stays) == ""

    asyncio.run(main())


def test_gated_pods_wait_for_their_gates_and_cost_nothing(cast):
    """kube-scheduler does not see them; when the last gate is gone they are placed as any other."""

    async def main():
        async with play(cast, ONE) as played:
            gates = {"schedulingGates": [{"name": "quota"}, {"name": "approval"}]}
            await played.create(make_pod("gated", 8, spec=gates))
            await played.create(make_pod("open", 8, runs_s=0.5))
            await played.bound("open")
            await played.gone("open")
            assert played.pod("gated").node is None
            await played.api.patch(
                pod_path("gated"), {"spec": {"schedulingGates": [{"name": "approval"}]}}
            )
            await played.api.patch(pod_path("gated"), {"spec": {"schedulingGates": []}})
            await played.bound("gated")

    asyncio.run(main())


def test_a_binding_that_the_api_server_refuses_for_a_gate_is_taken_back(cast):
    """A scheduler that binds too early gets an error, and the devices stay free."""

    async def main():
        async with play(cast, ONE) as played:
            gates = {"schedulingGates": [{"name": "quota"}]}
            uid = await played.create(make_pod("gated", 8, spec=gates))
            assert "gated" in await bind(cast, "gated", uid, played.nodes[0].name)
            await played.create(make_pod("open", 8))
            await played.bound("open")

    asyncio.run(main())
