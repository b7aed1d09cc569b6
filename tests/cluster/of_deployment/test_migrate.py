"""The check for two plugins (docs/migrate.md), and what a removal leaves (operator guide)."""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial

import pytest

from tests.cluster.control.control_plane import CommandFailed, ControlPlane
from tests.cluster.control.manifests import (
    Mode,
    apply_manifest,
    await_so,
    install,
    rendered,
    send_gpu_pods,
)
from tests.docs.markdown import ROOT, blocks
from topology.model import names

pytestmark = pytest.mark.cluster

PAGE = ROOT / "docs" / "migrate.md"
GUIDE = ROOT / "docs" / "operator-guide.md"
PODS = "/api/v1/namespaces/default/pods"
OURS = {names.TOPOLOGY: "t", names.DEVICES: "d"}
MERGE = {"Content-Type": "application/merge-patch+json"}
PLUGINS = {
    "operator": {"app": "nvidia-device-plugin-daemonset"},
    "chart": {"app.kubernetes.io/name": "nvidia-device-plugin"},
    "static": {"name": "nvidia-device-plugin-ds"},
    "gke": {"k8s-app": "nvidia-gpu-device-plugin"},
    "none": {"app": "other"},
}
"""Labels of pods on a node of that name."""
DISCOVERY = {"name": "gpu-feature-discovery-ctr", "image": "none"}
"""A container whose pods have the plugin's labels in NVIDIA's chart, and serve nothing."""


def block(containing, page=PAGE):
    """The one code block of the page with these words in it."""
    (found,) = [one.text for one in blocks(page) if containing in one.text]
    return found


def run(plane, folder, text):
    """What a block of the page prints, with kubectl at hand."""
    (programs := folder / "bin").mkdir(exist_ok=True)
    if not (programs / "kubectl").exists():
        (programs / "kubectl").symlink_to(plane.binaries.kubectl)
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "KUBECONFIG": str(plane.admin),
    }
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_pod(plane, name, **spec):
    """A pod; `labels` and `phase` are those of the object."""
    labels, phase = spec.pop("labels", {}), spec.pop("phase", "")
    pod = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "none"}], **spec},
    }
    plane.client.post(PODS, json=pod).raise_for_status()
    if phase:
        body = {"status": {"phase": phase}}
        answer = plane.client.patch(f"{PODS}/{name}/status", json=body, headers=MERGE)
        answer.raise_for_status()


def test_nodes_with_two_plugins_are_found(control_plane, tmp_path):
    """By every label that NVIDIA's plugin comes with; ended pods and single ones are no fault."""
    for node, labels in PLUGINS.items():
        control_plane.client.post("/api/v1/nodes", json={"metadata": {"name": node}})
        make_pod(control_plane, f"{node}-nvidia", labels=labels, nodeName=node, phase="Running")
    control_plane.client.post("/api/v1/nodes", json={"metadata": {"name": "discovery"}})
    spec = {"nodeName": "discovery", "containers": [DISCOVERY]}
    make_pod(control_plane, "gfd", labels=PLUGINS["chart"], phase="Running", **spec)
    ours = {"app.kubernetes.io/name": "coterie-plugin"}
    check = partial(run, control_plane, tmp_path, block("uniq --repeated"))
    assert check() == ""
    for node in (*PLUGINS, "discovery"):
        phase = "Succeeded" if node == "gke" else "Running"
        make_pod(control_plane, f"{node}-coterie", labels=ours, nodeName=node, phase=phase)
    assert check().split() == ["chart", "operator", "static"]


def test_a_node_that_offers_fewer_gpus_is_not_done(control_plane, tmp_path):
    """The pod of a reporter is ready too; only the node's count shows that GPUs are served."""
    control_plane.client.post("/api/v1/nodes", json={"metadata": {"name": "my-node"}})
    (count,) = [
        line for line in block("wait node/my-node").splitlines() if "wait node/my-node" in line
    ]
    assert "--timeout=2m" in count

    def offer(n_gpus):
        body = {"status": {"allocatable": {names.DEFAULT_RESOURCE: n_gpus}}}
        path = "/api/v1/nodes/my-node/status"
        control_plane.client.patch(path, json=body, headers=MERGE).raise_for_status()

    offer("7")
    with pytest.raises(AssertionError, match="timed out waiting for the condition"):
        run(control_plane, tmp_path, count.replace("2m", "2s"))
    offer("8")
    assert "condition met" in run(control_plane, tmp_path, count)


def test_what_stays_after_a_removal_is_what_the_page_lists(binaries, tmp_path):
    """Annotations that no user could remove before, and pods without an end of their own."""
    removed = block("delete --ignore-not-found -f dist", GUIDE)
    made = tmp_path / "dist" / "manifests"
    made.mkdir(parents=True)
    for name in re.findall(r"manifests/(\S+)\.yaml", removed):
        (made / f"{name}.yaml").write_text(rendered(name), encoding="utf-8")
    (state := tmp_path / "plane").mkdir()
    with ControlPlane(binaries, state) as plane:
        node = {"metadata": {"name": "n1", "annotations": OURS | {"other": "o"}}}
        plane.client.post("/api/v1/nodes", json=node).raise_for_status()
        install(plane, Mode.SECOND_SCHEDULER)
        send_gpu_pods(plane)
        apply_manifest(plane, Mode.SECOND_SCHEDULER.value)
        limits = {"limits": {names.DEFAULT_RESOURCE: "1"}}
        container = {"name": "main", "image": "none", "resources": limits}
        make_pod(plane, "waits", schedulerName="coterie-scheduler", containers=[container])
        removal = ("annotate", "nodes", "--all", *(f"{key}-" for key in OURS))

        def is_refused():
            try:
                plane.kubectl(*removal, "--dry-run=server")
            except CommandFailed as error:
                return "only the node plugin of this node may" in str(error)
            return False

        await_so(is_refused, "policy about the nodes' keys")
        run(plane, tmp_path, removed.replace(" -f ", " --wait=false -f "))
        await_so(lambda: not is_refused(), "policies are gone")
        stayed = plane.client.get("/api/v1/nodes/n1").json()["metadata"]["annotations"]
        assert stayed.items() >= OURS.items()
        plane.kubectl(*removal)
        left = plane.client.get("/api/v1/nodes/n1").json()["metadata"]["annotations"]
        assert left == {key: value for key, value in stayed.items() if key not in OURS}
        listed = run(plane, tmp_path, block("spec.schedulerName=coterie-scheduler", GUIDE))
        assert [line.split()[1] for line in listed.splitlines()[1:]] == ["waits"]
        kinds = ("clusterroles", "clusterrolebindings", "validatingadmissionpolicies")
        found = plane.kubectl("get", ",".join(kinds), "-o", "name").split()
        assert [one for one in found if "coterie" in one] == []
