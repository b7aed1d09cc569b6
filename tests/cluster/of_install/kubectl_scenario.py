"""What `kubectl coterie` does on an installation, whichever way the extender runs.

The pod `placed` has GPUs, `waits` fits nowhere. A reader has the Role that deploy/ gives for it
and no other right, a stranger has none.
"""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.cluster.control.manifests import await_so
from tests.cluster.install.stage import gpu_pod
from tests.cluster.of_install.kubectl_coterie import KubectlCoterie

if TYPE_CHECKING:
    from tests.cluster.install.stage import InstallStage

__all__ = [
    "admin_sees_everything",
    "pod_that_waits",
    "reader_sees_the_extender",
    "stranger_is_told_the_right",
]

READER, STRANGER = "reader", "stranger"


def pod_that_waits(name: str) -> dict[str, Any]:
    """A pod of two GPUs that no machine connects so fast."""
    pod = gpu_pod(name, 2, schedulerName="coterie-scheduler")
    pod["metadata"]["annotations"] = {"coterie.gpu/min-bandwidth": "99999"}
    return pod


def admin_sees_everything(stage: InstallStage, *, placed: str, waits: str) -> None:
    """Each command answers with what the API server and the plan on the pod say."""
    coterie = KubectlCoterie(stage.control_plane)
    plan = stage.plan(placed)
    (node,) = json.loads(coterie("nodes", "-o", "json"))["items"]
    assert node["name"] == "node-0"
    owned = sorted(gpu["id"] for gpu in node["gpus"] if gpu["pod"] == f"default/{placed}")
    assert owned == plan
    (pod,) = json.loads(coterie("pods", placed, "-o", "json"))["items"]
    assert sorted(pod["ids"]) == plan
    await_so(lambda: waits in coterie("pods", "--pending"), "the pod that waits")
    crowded_out(stage, coterie)
    told = coterie("explain", placed)
    assert told.startswith(placed)
    assert "node-0" in told
    assert "0 of 1 node fits" in coterie("explain", waits)
    assert "node-0" in coterie("topology", "node-0")
    assert coterie("capacity")
    assert "Machine types" in coterie("audit")
    assert "failed" not in coterie("check")
    sees_the_page(coterie)


def crowded_out(stage: InstallStage, coterie: KubectlCoterie) -> None:
    """kube-scheduler itself has too few GPUs for this pod, and calls no extender for it."""
    stage.pods.create(gpu_pod("crowded", 8, schedulerName="coterie-scheduler"))

    def said() -> str:
        items = json.loads(coterie("pods", "--pending", "-o", "json"))["items"]
        return "".join(item["reason"] for item in items if item["name"] == "crowded")

    await_so(lambda: "Insufficient nvidia.com/gpu" in said(), "the scheduler's own message")
    stage.pods.delete("crowded")


def sees_the_page(coterie: KubectlCoterie) -> None:
    """`ui` prints an address that a browser of this machine opens; ctrl-C ends it."""
    with coterie.running("ui", "--no-browser") as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        with urllib.request.urlopen(address, timeout=60) as page:  # noqa: S310 - http on the loopback
            assert b"<!doctype html>" in page.read(200).lower()
    assert process.returncode == 130


def reader_sees_the_extender(stage: InstallStage, *, namespace: str) -> None:
    """Who is bound to the Role in the extender's namespace needs no other right."""
    plane = stage.control_plane
    binding = ("create", "rolebinding", READER, "--role=coterie-reader", f"--user={READER}")
    stage.kubectl(*binding, "-n", namespace)
    coterie = KubectlCoterie(plane, plane.kubeconfig(READER))
    assert coterie("nodes", "-o", "name") == "node/node-0\n"
    refused = coterie.run("nodes", "-l", "a=b")
    assert refused.returncode == 1
    assert 'cannot list resource "nodes"' in refused.stderr


def stranger_is_told_the_right(stage: InstallStage, *, namespace: str, pod: str) -> None:
    """A sentence names the missing right, on standard error, and no trace of Python."""
    plane = stage.control_plane
    coterie = KubectlCoterie(plane, plane.kubeconfig(STRANGER))
    listing = coterie.run("nodes")
    assert (listing.returncode, listing.stdout) == (1, "")
    assert 'User "stranger" cannot list resource "pods"' in listing.stderr
    assert "coterie-reader" in listing.stderr
    forwarding = coterie.run("nodes", "--extender-pod", f"{namespace}/{pod}")
    assert forwarding.returncode == 1
    assert f"you may not get and create pods/portforward in namespace {namespace}" in (
        forwarding.stderr
    )
    assert listing.stderr.count("\n") == forwarding.stderr.count("\n") == 1
