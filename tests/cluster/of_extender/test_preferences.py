"""What counts beside what, in kube-scheduler's sum of scores: the user, then the set, then cost."""

from __future__ import annotations

import asyncio

import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.nodes import node_path
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.fleet.workload import make_pod

pytestmark = pytest.mark.cluster

EQUAL = parse_cluster("8x dgx-1-v100")
UNEQUAL = parse_cluster("2x dgx-1-v100, 2x 8x-l4")
MIXED = parse_cluster("4x dgx-h100, 4x dgx-1-v100, 4x 8x-t4")
HOST = "kubernetes.io/hostname"
LARGE = 16 << 30
"""Bytes of an image that is on one node of eight: ImageLocality gives its most (100) from 1 GB on,
times the share of nodes that have it (image_locality.go)."""


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender and scheduler."""
    made = start_cast(control_plane)
    yield made
    made.stop()


def preferring(name, n_gpus, node, weight=1, **annotations):
    """A pod that would rather be on a node."""
    pod = make_pod(name, n_gpus, **annotations)
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    preferred = [{"weight": weight, "preference": term}]
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    }
    return pod


def replica(name, app):
    """A pod that would rather not be where its like is."""
    pod = make_pod(name, 1)
    pod["metadata"]["labels"] = {"app": app}
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    pod["spec"]["affinity"] = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    }
    return pod


def spread(name, app):
    """A pod whose likes are to be even over nodes, as far as that goes."""
    pod = make_pod(name, 1)
    pod["metadata"]["labels"] = {"app": app}
    pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": app}},
        }
    ]
    return pod


async def place(played, *pods):
    """Create pods one after another; the nodes that they get."""
    found = []
    for pod in pods:
        await played.create(pod)
        (bound,) = await played.bound(pod["metadata"]["name"])
        found.append(bound.node)
    return found


@pytest.mark.parametrize("make", [replica, spread], ids=["anti-affinity", "spreading"])
def test_eight_replicas_come_to_eight_nodes(cast, make):
    """All came to one: what a second GPU of one machine costs less counted 1800 points of 2000."""

    async def main():
        async with play(cast, EQUAL) as played:
            nodes = await place(played, *(make(f"replica-{i}", "web") for i in range(8)))
            assert len(set(nodes)) == 8

    asyncio.run(main())


def test_without_preferences_pods_are_packed(cast):
    """Economy outvotes what kube-scheduler adds by itself, which is for the emptier node."""

    async def main():
        async with play(cast, EQUAL) as played:
            nodes = await place(played, *(make_pod(f"single-{i}", 1) for i in range(8)))
            assert len(set(nodes)) == 1

    asyncio.run(main())


def test_a_preferred_node_is_followed_where_sets_are_equal(cast):
    """Also with the least weight, and though another machine would be filled first."""

    async def main():
        async with play(cast, EQUAL) as played:
            (used,) = await place(played, make_pod("first", 1))
            others = [node.name for node in played.nodes if node.name != used][:3]
            pods = [preferring(f"preferring-{i}", 1, node) for i, node in enumerate(others)]
            assert await place(played, *pods) == others

    asyncio.run(main())


def test_images_are_followed_where_sets_are_equal(cast):
    """Whole machines, so that none of them is partly used."""

    async def main():
        async with play(cast, EQUAL) as played:
            targets = [played.nodes[i].name for i in (6, 1, 4)]
            pods = []
            for i, node in enumerate(targets):
                image = f"registry.example/train-{i}:1"
                status = {"images": [{"names": [image], "sizeBytes": LARGE}]}
                await played.api.patch(node_path(node) + "/status", {"status": status})
                pod = make_pod(f"job-{i}", 8)
                pod["spec"]["containers"][0]["image"] = image
                pods.append(pod)
            await asyncio.sleep(2)  # nothing shows what kube-scheduler's cache knows of images
            assert await place(played, *pods) == targets

    asyncio.run(main())


def test_a_preferred_node_does_not_outvote_a_missed_affinity(cast):
    """What a pod states about its GPUs comes first, though it does not require it."""

    async def main():
        async with play(cast, UNEQUAL) as played:
            pair = preferring("pair", 2, "8x-l4-0", 100, annotations=NVLINK)
            single = preferring("single", 1, "8x-l4-0", 100, annotations=NVLINK)
            nodes = await place(played, pair, single)
            assert nodes[0].startswith("dgx-1-v100")
            assert nodes[1] == "8x-l4-0"

    asyncio.run(main())


NVLINK = {"coterie.gpu/affinity": "nvlink"}
FASTEST = {"coterie.gpu/prefer": "fastest"}


def test_small_pods_of_a_mixed_fleet_leave_the_fastest_machines_whole(cast):
    """Of four 8-GPU jobs two fell to V100s, since all small pods had gone to the H100s."""

    async def main():
        async with play(cast, MIXED) as played:
            small = [make_pod(f"small-{i}", 1 + i % 2) for i in range(32)]
            assert not [n for n in await place(played, *small) if n.startswith("dgx-h100")]
            jobs = [make_pod(f"job-{i}", 8, annotations=FASTEST) for i in range(4)]
            nodes = await place(played, *jobs)
            assert sorted(nodes) == [f"dgx-h100-{i}" for i in range(4)]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("annotations", "machine"),
    [
        pytest.param({}, "8x-t4", id="no annotation"),
        pytest.param({"coterie.gpu/affinity": "none"}, "8x-t4", id="none"),
        pytest.param(NVLINK, "dgx-1-v100", id="nvlink"),
        pytest.param({"coterie.gpu/min-bandwidth": "20"}, "dgx-1-v100", id="20 GB/s"),
        pytest.param({"coterie.gpu/min-bandwidth": "100"}, "dgx-h100", id="100 GB/s"),
        pytest.param(FASTEST, "dgx-h100", id="fastest"),
    ],
)
def test_a_pair_of_a_mixed_fleet_gets_the_cheapest_gpus_that_serve_it(cast, annotations, machine):
    """H100s are for those that need them or say so."""

    async def main():
        async with play(cast, MIXED) as played:
            (node,) = await place(played, make_pod("pair", 2, annotations=annotations))
            assert node.rpartition("-")[0] == machine

    asyncio.run(main())
