"""The user guide's examples of groups, as their controllers carry them out: each starts whole.

The Job controller is Kubernetes' own; what the others make of a manifest is in `group_kinds`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from extender.embedded.spec import ClusterSpec, NodeGroup
from tests.cluster.fleet.group_kinds import jobs_of, pods_of
from tests.cluster.fleet.stage import play, start_cast
from tests.cluster.loop.loop_jobs import JOBS

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
GROUP = "coterie.gpu/group"
ROOMY = "dgx-h100"
LEAF = "network.topology.nvidia.com/leaf"
NODES = ClusterSpec(
    groups=[
        NodeGroup(count=count, machine=machine, labels={LEAF: machine})
        for machine, count in (("hgx-h200", 3), (ROOMY, 5))
    ],
    zones=["zone-a"],
)
"""Two leaves, of which one has room for four members of eight GPUs."""
RANKS = {
    "indexed-job-group": [0, 1, 2, 3],
    "jobset-group": [0, 1, 10_000, 10_001],
    "leaderworkerset-group": [0, 1],
    "pytorchjob-group": [0, 1, 2, 3],
}
"""Of each example, the ranks of its members; a JobSet's second Job counts from 10,000."""


def example(stem):
    """The manifest."""
    return yaml.safe_load((EXAMPLES / f"{stem}.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cast(control_plane):
    """Extender, scheduler, and what makes pods of Jobs."""
    made = start_cast(control_plane)
    manager = control_plane.start_controller_manager("job-controller")
    yield made
    manager.stop()
    made.stop()


async def carry_out(played, manifest):
    """Create what the manifest's controller makes, or what makes it; the Jobs' paths."""
    if manifest["kind"] not in {"Job", "JobSet"}:
        for pod in pods_of(manifest):
            await played.create(pod)
        return []
    jobs = jobs_of(manifest)
    for job in jobs:
        await played.api.create(JOBS, job)
    return [f"{JOBS}/{job['metadata']['name']}" for job in jobs]


def test_each_example_of_a_group_is_tried():
    """None is added without its ranks."""
    assert sorted(RANKS) == sorted(path.stem for path in EXAMPLES.glob("*-group.yaml"))


@pytest.mark.parametrize("stem", RANKS)
def test_an_example_starts_whole_in_one_leaf(cast, stem):
    """With the ranks that its controller gives; two members of four GPUs share a node."""
    manifest, ranks = example(stem), RANKS[stem]

    async def main():
        async with play(cast, NODES) as played:
            jobs = await carry_out(played, manifest)

            def bound():
                return [one for one in played.checker.pods.values() if one.node is not None]

            await played.until(lambda: len(bound()) == len(ranks))
            pods = bound()
            plans = [json.loads(one.plan or "") for one in pods]
            assert sorted(plan["group"]["rank"] for plan in plans) == ranks
            (name,) = {plan["group"]["name"] for plan in plans}
            assert name.partition("/")[0] == dict(pods[0].wishes)[GROUP]
            nodes = {str(one.node) for one in pods}
            if len(ranks) == 4:
                assert len(nodes) == 4
                assert {node.rpartition("-")[0] for node in nodes} == {ROOMY}
            else:
                assert len(nodes) == 1
            for path in jobs:
                await played.api.delete(path)
            await played.delete(*(one.name for one in pods))

    asyncio.run(main())


def test_of_two_replicas_with_one_name_none_holds_gpus_alone(cast):
    """Both leaders came first and were the whole group; their workers waited for ever."""
    manifest = example("leaderworkerset-group")
    manifest["spec"]["replicas"] = 2
    template = manifest["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 8
    nodes = ClusterSpec(groups=[NodeGroup(count=2, machine=ROOMY)], zones=["zone-a"])

    async def main():
        async with play(cast, nodes) as played:
            leaders, workers = (pods_of(manifest)[i : i + 2] for i in (0, 2))
            for pod in (*leaders, *workers):
                await played.create(pod)

            def bound():
                return [one.name for one in played.checker.pods.values() if one.node is not None]

            await played.until(lambda: len(bound()) == 2)
            names = sorted(bound())
            assert names in (
                ["serve-group-0", "serve-group-0-1"],
                ["serve-group-1", "serve-group-1-1"],
            )
            await played.delete(*names)
            await played.until(lambda: len(bound()) == 2 and not {*names} & {*bound()})
            await played.delete(*bound())

    asyncio.run(main())
