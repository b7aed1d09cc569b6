"""What users read of Coterie's decisions: Events on pods and nodes, and `explain`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from extender.embedded import parse_cluster
from tests.cluster.fleet.stage import Cast, play, start_cast
from tests.cluster.fleet.workload import make_pod
from topology.annotations import decode_plan, pod_keys
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.control.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

SOON_S = 60.0
WARNED = {pod_keys.POLICY: "required"}
"""Without an affinity, so that it has no effect."""


@pytest.fixture
def cast(control_plane: ControlPlane) -> Iterator[Cast]:
    """Extender and scheduler side by side, which report everything."""
    made = start_cast(control_plane, "--events", "all")
    yield made
    made.stop()


def test_users_read_what_happened(cast):
    """In `kubectl describe` of the pod and of the node, and by `explain`."""

    async def described(kind: str, name: str, *parts: str) -> str:
        async with asyncio.timeout(SOON_S):
            while True:
                text: str = await asyncio.to_thread(
                    cast.control_plane.kubectl, "describe", kind, name
                )
                if all(part in text for part in parts):
                    return text
                await asyncio.sleep(0.2)

    async def main() -> None:
        async with play(cast, parse_cluster("1x dgx-1-v100")) as played:
            (node,) = played.nodes
            await played.create(make_pod("grouped", 2, annotations=WARNED))
            (pod,) = await played.bound("grouped")
            assert pod.plan is not None
            (placed,) = decode_plan(pod.plan).containers
            text = await described("pod", "grouped", "GpusPlaced", "UnsupportedGpuRequest")
            assert ", ".join(placed.ids) in text
            explained = await asyncio.to_thread(explain, cast.extender.url, "default/grouped")
            assert explained["bound"]["node"] == node.name
            broken = {"metadata": {"annotations": {names.TOPOLOGY: "{"}}}
            await played.api.patch(f"/api/v1/nodes/{node.name}", broken)
            await described("node", node.name, "GpuNodeProblem")
            await played.delete("grouped")

    asyncio.run(main())


def test_users_read_what_their_groups_wait_for_and_where_they_are(cast):
    """By Events on one of the members, and by `explain` on each."""

    def described(name: str, reason: str) -> str:
        """The line of an Event."""
        text = cast.control_plane.kubectl("describe", "pod", name)
        return next((line for line in text.splitlines() if reason in line), "")

    async def until_described(name: str, reason: str) -> str:
        async with asyncio.timeout(SOON_S):
            while not (line := await asyncio.to_thread(described, name, reason)):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.2)
        return line

    async def main() -> None:
        async with play(cast, parse_cluster("2x dgx-h100")) as played:
            await played.create(make_pod("other", 1))
            await played.bound("other")
            members = [f"g-{number}" for number in range(2)]
            for name in members:
                wishes = {pod_keys.GROUP: "g", pod_keys.GROUP_SIZE: "2"}
                await played.create(make_pod(name, 8, annotations=wishes))
            line = await until_described("g-0", "GroupHasNoRoom")
            assert "2 members of 8 GPUs; " in line
            assert "has room for 1 of 2 members" in line
            explained = await asyncio.to_thread(explain, cast.extender.url, "default/g-1")
            assert (explained["group"]["n_here"], explained["group"]["n_missing"]) == (2, 0)
            assert "has room for 1 of 2 members" in explained["group"]["detail"]
            await played.delete("other")
            await played.bound(*members)
            line = await until_described("g-0", "GroupPlaced")
            assert "2 nodes, 469 GB/s all-reduce predicted" in line
            group = (await asyncio.to_thread(explain, cast.extender.url, "default/g-1"))["group"]
            assert (group["n_bound"], round(group["gbytes_per_s"])) == (2, 469)
            metrics = cast.extender.get("/metrics").text
            assert 'coterie_extender_groups_total{outcome="whole"} 1.0' in metrics

    asyncio.run(main())


def explain(url: str, pod: str) -> Any:
    """What the command line prints about a pod of the cluster."""
    done = subprocess.run(
        [sys.executable, "-m", "extender", "explain", pod, "--url", url],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)
