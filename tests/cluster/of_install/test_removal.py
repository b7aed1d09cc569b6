"""Coterie is removed below running GPU pods: what goes, and what stays as the page says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.control.control_plane import CommandFailed
from tests.cluster.control.manifests import DEPLOY, await_so, send_gpu_pods
from tests.cluster.install.stage import SIMULATED, InstallStage, gpu_pod
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.install.images import Images
    from tests.cluster.install.stage import InstallTools

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.install]

SYSTEM, AGENTS = "coterie-system", "coterie-node"
AGENT, SCHEDULER = "daemonset/coterie-plugin", "deployment/coterie-scheduler"
NODE = "node-0"
OURS = {names.TOPOLOGY, names.DEVICES}


@pytest.fixture
def stage(
    install_tools: InstallTools, install_images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallStage]:
    """The second scheduler with simulated GPUs, and all GPU pods sent there."""
    with InstallStage(install_tools, install_images, tmp_path_factory.mktemp("install")) as running:
        with running.timed("install"):
            apply(running)
        send_gpu_pods(running.control_plane)
        yield running


def apply(stage, *components, tag=None):
    """Apply scheduler and agents, each from a kustomization of its own, as docs/install.md says.

    Returns these, the scheduler's first.
    """
    own = (
        stage.kustomization("second-scheduler", tag=tag),
        stage.kustomization("plugin-simulated", *components, tag=tag),
    )
    for one in own:
        stage.kubectl("apply", "-k", str(one))
    roll_out(stage)
    return own


def roll_out(stage):
    """Wait until all pods are new and Ready."""
    stage.rolled_out(AGENT, AGENTS)
    stage.rolled_out(SCHEDULER, SYSTEM)


def keys_of_node(stage):
    """Coterie's on the Node."""
    return OURS & stage.get(f"/api/v1/nodes/{NODE}")["metadata"].get("annotations", {}).keys()


def checkpoint(stage):
    """The devices that the kubelet has noted."""
    noted = json.loads(stage.nodes[NODE].checkpoint.read_text(encoding="utf-8"))
    entries = noted["Data"]["PodDeviceEntries"] or []
    return {one for entry in entries for ids in entry["DeviceIDs"].values() for one in ids}


def test_what_a_removal_takes_and_what_it_leaves(stage):
    """docs/operator-guide.md, "Remove": the order, and each row of its table."""
    running = stage.start("running", 4)
    plan = stage.plan("running")
    stage.pods.create(gpu_pod("waiting", 8))
    stage.pods.until("waiting", lambda pod: bool(pod["status"].get("conditions")))
    stage.kubectl("delete", "-k", str(DEPLOY / "scheduler-name"))
    assert keys_of_node(stage) == OURS
    with pytest.raises(CommandFailed, match="only the agent of this node"):
        stage.kubectl("annotate", "node", NODE, f"{names.TOPOLOGY}-")

    with stage.timed("clean"):
        scheduler, agents = apply(stage, "plugin-clean")
    removed = {line for line in agents_log(stage) if line.startswith("removed annotation")}
    assert removed == {f"removed annotation {one} of node {NODE}" for one in OURS}
    with stage.timed("delete"):
        # Its account's end takes the extender's token away before kubectl comes to it.
        stage.kubectl("delete", "--ignore-not-found", "-k", str(scheduler))
        stage.kubectl("delete", "-k", str(agents))

    assert keys_of_node(stage) == set()
    await_so(lambda: stage.gpus(NODE) == (8, 0), "GPUs without a plugin")
    assert list(stage.nodes[NODE].device_plugins.glob("*coterie*")) == []
    assert list(stage.nodes[NODE].cdi.glob("k8s.device-plugin.nvidia.com-*")) == []
    assert checkpoint(stage) == set(running.devices)
    assert stage.process("running") == running
    assert stage.plan("running") == plan
    assert stage.pods.get("waiting")["status"]["phase"] == "Pending"
    assert stage.pods.get("waiting")["spec"]["schedulerName"] == "coterie-scheduler"
    assert left_in_cluster(stage) == []
    labels = stage.get(f"/api/v1/nodes/{NODE}")["metadata"]["labels"]
    assert [one for one in labels if one.startswith(names.PREFIX)] == [SIMULATED]


def agents_log(stage):
    """The lines that the agents' pods printed."""
    selector = "app.kubernetes.io/name=coterie-plugin"
    return stage.kubectl("logs", "-n", AGENTS, "-l", selector, "--tail=-1").splitlines()


def left_in_cluster(stage):
    """Objects of any kind with Coterie's name, Events of what is gone aside."""
    kinds = stage.kubectl("api-resources", "--verbs=list", "--output=name").split()
    listed = ",".join(one for one in kinds if not one.startswith("events"))
    found = stage.kubectl("get", listed, "--all-namespaces", "--output=name").splitlines()
    return [one for one in found if "coterie" in one]
