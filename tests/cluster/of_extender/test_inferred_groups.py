"""Groups that other projects' keys say, where the setting names the kinds."""

from __future__ import annotations

import asyncio
import json

import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster

FOUR = parse_cluster("4x dgx-h100")
A_WHILE_S = 4.0
"""Long enough for a pod to be placed if it could be."""


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler; Kueue's pod groups and LeaderWorkerSets are read."""
    made = start_cast(control_plane, "--group-kinds", "kueue,leaderworkerset")
    yield made
    made.stop()


def of_kueue(name, gpus=8, count=3):
    """A pod of a pod group, without Kueue's gate."""
    made = make_pod(name, gpus, annotations={"kueue.x-k8s.io/pod-group-total-count": str(count)})
    made["metadata"]["labels"] = {"kueue.x-k8s.io/pod-group-name": "sweep"}
    return made


def of_lws(index, gpus=8, size=3):
    """A pod as LeaderWorkerSet makes it, its leader with the index 0."""
    prefix = "leaderworkerset.sigs.k8s.io/"
    made = make_pod(f"serve-{index}", gpus, annotations={f"{prefix}size": str(size)})
    labels = {f"{prefix}group-key": "k1", f"{prefix}worker-index": str(index)}
    made["metadata"]["labels"] = labels
    return made


def groups_of(played, *names):
    """The groups in the plans of pods, with the rank of each."""
    plans = [json.loads(played.pod(name).plan or "") for name in names]
    return [(plan["group"]["name"], plan["group"].get("rank")) for plan in plans]


def test_plain_pods_of_kueue_wait_for_each_other(cast):
    """Two of three wait, and all have a node soon after the third has come."""

    async def main():
        async with play(cast, FOUR) as played:
            for name in ("a", "b"):
                await played.create(of_kueue(name))
                assert "members are missing" in await played.refused(name)
            await asyncio.sleep(A_WHILE_S)
            assert [played.pod(name).node for name in ("a", "b")] == [None, None]
            await played.create(of_kueue("c"))
            pods = await played.bound("a", "b", "c")
            assert len({pod.node for pod in pods}) == 3
            assert groups_of(played, "a", "b", "c") == [("kueue/sweep", None)] * 3

    asyncio.run(main())


def test_a_leader_without_gpus_is_not_waited_for(cast):
    """It counts in the set's size; kube-scheduler places it without the extender, and first."""

    async def main():
        async with play(cast, FOUR) as played:
            await played.create(of_lws(0, gpus=0))
            await played.bound("serve-0")
            await played.create(of_lws(1))
            assert "members are missing" in await played.refused("serve-1")
            await played.create(of_lws(2))
            await played.bound("serve-1", "serve-2")
            found = groups_of(played, "serve-1", "serve-2")
            assert found == [("leaderworkerset/k1", 1), ("leaderworkerset/k1", 2)]

    asyncio.run(main())


def test_a_leader_without_gpus_is_known_after_a_restart(cast):
    """It has a node since long, and is seen by its metadata alone."""

    async def main():
        async with play(cast, FOUR) as played:
            await played.create(of_lws(0, gpus=0))
            await played.create(of_lws(1))
            await played.bound("serve-0")
            await asyncio.to_thread(cast.extender.kill)
            await asyncio.to_thread(cast.extender.start)
            await played.create(of_lws(2))
            await played.bound("serve-1", "serve-2")

    asyncio.run(main())
