"""A cluster to look at by `kubectl coterie`: nodes with GPUs, pods on them, Coterie's own pods.

The extender is a process; the pods that should run it are objects alone, which no kubelet runs.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from extender.embedded import parse_cluster
from tests.cluster.control.manifests import NAMESPACE, objects
from tests.cluster.fleet.stage import Cast, play, start_cast
from tests.cluster.fleet.workload import make_pod
from topology.annotations import pod_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.fleet.stage import Play

PLUGIN_NAMESPACE = "coterie-node"
WISH = {pod_keys.AFFINITY: "nvlink", pod_keys.POLICY: "required"}
_MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def cast(control_plane: ControlPlane) -> Iterator[Cast]:
    """Extender and scheduler as processes, with the policies of the chart."""
    made = start_cast(control_plane, "--events", "all")
    yield made
    made.stop()


@pytest.fixture
def looked_at(cast: Cast) -> Callable[[Callable[[Play], None]], None]:
    """Runs a test beside two DGX-1, a pod of four GPUs, one of eight, and Coterie's own pods."""

    def run(look: Callable[[Play], None]) -> None:
        async def main() -> None:
            async with _cluster(cast) as played:
                await asyncio.to_thread(look, played)

        asyncio.run(main())

    return run


@asynccontextmanager
async def _cluster(cast: Cast) -> AsyncIterator[Play]:
    plane = cast.control_plane
    async with play(cast, parse_cluster("2x dgx-1-v100")) as played:
        await played.create(make_pod("train-0", 4, annotations=WISH))
        await played.create(make_pod("train-1", 8, annotations=WISH))
        await played.bound("train-0", "train-1")
        try:
            await asyncio.to_thread(_create_programs, plane, played.nodes[0].name)
            yield played
        finally:
            await asyncio.to_thread(_remove_programs, plane)


def _create_programs(plane: ControlPlane, node: str) -> None:
    """The pods that a second scheduler and the node plugin would have, as if they ran."""
    made = objects("second-scheduler", "plugin.mode=device-plugin")
    kinds = {"Namespace", "ConfigMap"}
    kinds |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    of_others = ("user-keys", "own-keys", "extender-rights")
    for one in (one for one in made if one["kind"] in kinds):
        if one["metadata"]["name"].endswith(of_others):
            continue  # those of the extender that the tests run are there
        if one["kind"] == "ValidatingAdmissionPolicy":
            # The nodes here are the test's own: these are there and match nothing.
            one["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] = ["none.test"]
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(one))
    for kind, namespace, name in (
        ("Deployment", NAMESPACE, "coterie-scheduler-1"),
        ("DaemonSet", PLUGIN_NAMESPACE, "coterie-plugin-1"),
    ):
        (workload,) = (one for one in made if one["kind"] == kind)
        _create_pod(plane, workload["spec"]["template"], namespace, name, node)


def _create_pod(
    plane: ControlPlane, template: dict[str, Any], namespace: str, name: str, node: str
) -> None:
    """A pod of a template on a node, which is ready."""
    metadata = {**template["metadata"], "name": name, "namespace": namespace}
    spec = {**template["spec"], "nodeName": node}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    plane.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    statuses = [
        {"name": one["name"], "ready": True, "restartCount": 0, "image": "", "imageID": ""}
        for one in spec["containers"]
    ]
    patch = {"status": {"phase": "Running", "containerStatuses": statuses}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    plane.client.patch(path, json=patch, headers=_MERGE).raise_for_status()


def _remove_programs(plane: ControlPlane) -> None:
    """What others on this control plane must not meet: these pods, and policies for nodes."""
    for namespace in (NAMESPACE, PLUGIN_NAMESPACE):
        plane.kubectl("-n", namespace, "delete", "pods", "--all", "--force", "--ignore-not-found")
    for part in ("node-keys", "agent-rights"):
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            plane.kubectl("delete", kind, f"coterie-{part}", "--ignore-not-found")
