"""`kubectl coterie check` and `topology` on the real API server, with all rights and with none."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.of_install.kubectl_coterie import KubectlCoterie
from topology.model import names

if TYPE_CHECKING:
    import subprocess

    from tests.cluster.control.control_plane import ControlPlane
    from tests.cluster.fleet.stage import Play

pytestmark = pytest.mark.cluster

LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "coterie-scheduler", "namespace": "coterie-system"},
}


def checked(
    coterie: KubectlCoterie, played: Play
) -> tuple[subprocess.CompletedProcess[str], dict[str, list[tuple[str, str]]]]:
    """What ended, and state and sentence of each finding, by check."""
    done = coterie.run("check", "-o", "json", "--extender-url", played.cast.extender.url)
    found: dict[str, list[tuple[str, str]]] = {}
    for item in json.loads(done.stdout)["items"]:
        found.setdefault(item["check"], []).append((item["state"], item["about"]))
    return done, found


def states(found: dict[str, list[tuple[str, str]]]) -> dict[str, set[str]]:
    """The states of each check."""
    return {check: {state for state, _ in rows} for check, rows in found.items()}


def hold_lease(plane: ControlPlane) -> None:
    """As the scheduler that leads does."""
    now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": now}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps({**LEASE, "spec": spec}))


def test_a_right_installation_passes(looked_at):
    """Each check reads what the chart really makes, and exits with 0."""

    def look(played: Play) -> None:
        plane = played.cast.control_plane
        hold_lease(plane)
        done, found = checked(KubectlCoterie(plane), played)
        assert (done.returncode, done.stderr) == (0, "")
        # The nodes here have no report of devices, and the images of the chart no version.
        assert states(found) == {
            "kubernetes": {"ok"},
            "versions": {"ok", "not known"},
            "extender": {"ok"},
            "leader": {"ok"},
            "node plugin": {"ok"},
            "device plugins": {"ok"},
            "topologies": {"ok"},
            "devices": {"warning"},
            "scheduler config": {"ok"},
            "scheduler name": {"ok"},
            "pods": {"ok"},
            "policies": {"ok"},
            "certificates": {"ok"},
        }
        assert ("ok", "ready: 2 nodes, 16 GPUs, 2 pods placed, 0 wait") in found["extender"]

    looked_at(look)


def test_faults_are_found(looked_at):
    """Each as an administrator makes it; the exit code is 1."""

    def look(played: Play) -> None:
        plane = played.cast.control_plane
        first, second = (node.name for node in played.nodes)
        plane.kubectl("delete", "lease", "-n", "coterie-system", "--all")
        nvidia: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "nvidia-device-plugin-daemonset-x",
                "namespace": "kube-system",
                "labels": {"app": "nvidia-device-plugin-daemonset"},
            },
            "spec": {"nodeName": first, "containers": [{"name": "p", "image": "none"}]},
        }
        plane.kubectl("create", "-f", "-", stdin=json.dumps(nvidia))
        path = "/api/v1/namespaces/kube-system/pods/nvidia-device-plugin-daemonset-x/status"
        merge = {"Content-Type": "application/merge-patch+json"}
        running = {"status": {"phase": "Running"}}
        plane.client.patch(path, json=running, headers=merge).raise_for_status()
        plane.kubectl("delete", "validatingadmissionpolicybinding", "coterie-node-keys")
        broken = {"metadata": {"annotations": {names.TOPOLOGY: "{"}}}
        plane.client.patch(f"/api/v1/nodes/{second}", json=broken, headers=merge).raise_for_status()
        try:
            done, found = checked(KubectlCoterie(plane), played)
        finally:
            plane.kubectl("-n", "kube-system", "delete", "pods", "-l", "app", "--force")
        assert done.returncode == 1
        assert states(found)["topologies"] == {"failed"}
        assert states(found)["device plugins"] == {"failed"}
        assert states(found)["policies"] == {"failed"}
        assert states(found)["leader"] == {"failed"}
        assert "coterie-node-keys" in found["policies"][0][1]
        assert f"on node {first}" in found["device plugins"][0][1]

    looked_at(look)


def test_a_user_without_rights_learns_which_they_are(looked_at):
    """Nothing fails for it, and the API server's own words name each right."""

    def look(played: Play) -> None:
        plane = played.cast.control_plane
        done, found = checked(KubectlCoterie(plane, plane.kubeconfig("stranger")), played)
        assert (done.returncode, done.stderr) == (0, "")
        assert states(found)["kubernetes"] == {"ok"}
        assert states(found)["extender"] == {"ok"}
        for check, resource in (
            ("topologies", "nodes"),
            ("pods", "pods"),
            ("policies", "validatingadmissionpolicies"),
        ):
            ((state, about),) = found[check]
            assert state == "not known"
            assert f'User "stranger" cannot list resource "{resource}"' in about

    looked_at(look)


def test_a_node_is_drawn_with_its_pods(looked_at):
    """The machine from the Node, owners from the extender; without one the machine alone."""

    def look(played: Play) -> None:
        plane = played.cast.control_plane
        coterie = KubectlCoterie(plane)
        url = ("--extender-url", played.cast.extender.url)
        node = played.pod("train-0").node
        assert node is not None
        drawn = coterie("topology", node, *url)
        assert "A  default/train-0   GPUs " in drawn
        assert "NVLink, 2 links: 0-3" in drawn
        found = json.loads(coterie("topology", node, "-o", "json", *url))
        owned = [one["gpu"] for one in found["owners"] if one["pod"] == "default/train-0"]
        assert len(owned) == 4
        alone = coterie("topology", node, "--extender-namespace", "default")
        assert "Owners are not shown" in alone
        assert coterie("topology", node, "--matrix").startswith("Accelerator links")
        stranger = KubectlCoterie(plane, plane.kubeconfig("stranger"))
        refused = stranger.run("topology", node, *url)
        assert refused.returncode == 1
        assert 'User "stranger" cannot get resource "nodes"' in refused.stderr

    looked_at(look)
