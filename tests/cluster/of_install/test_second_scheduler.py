"""The manifest of a second scheduler as a reader applies it by kubectl, from beginning to end.

Programs run in their images as pods, with the accounts, rights and policies of the chart, in
networks of their own. Upgrades and rollbacks are Helm's part (test_chart_lifecycle.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.control.manifests import await_so, send_gpu_pods
from tests.cluster.install.stage import SIMULATED, InstallStage, gpu_pod
from tests.cluster.of_install.chart_release import documented, run_documented
from tests.cluster.of_install.kubectl_scenario import (
    admin_sees_everything,
    pod_that_waits,
    reader_sees_the_extender,
)
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.install.images import Images
    from tests.cluster.install.stage import InstallTools

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.install]

WAY = "second-scheduler"
SYSTEM, NODE = "coterie-system", "coterie-node"
MACHINE = "node-0"
OURS = {names.TOPOLOGY, names.DEVICES}
GUIDE = "operator-guide.md"
PLUGIN, SCHEDULER = "daemonset/coterie-plugin", "deployment/coterie-scheduler"


@pytest.fixture(scope="module")
def stage(
    install_tools: InstallTools, install_images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallStage]:
    """The way, installed, and all GPU pods sent there."""
    with InstallStage(install_tools, install_images, tmp_path_factory.mktemp("install")) as running:
        with running.timed("install"):
            install(running)
        yield running


def install(stage):
    """Apply all and wait until it runs, and all GPU pods are sent there."""
    stage.apply(WAY)
    roll_out(stage)
    send_gpu_pods(stage.control_plane)


def roll_out(stage):
    """Wait until all pods are new and Ready."""
    stage.rolled_out(PLUGIN, NODE)
    stage.rolled_out(SCHEDULER, SYSTEM)


def test_a_jobs_container_has_what_was_planned(stage):
    """The whole way: policy, scheduler, extender, plan, kubelet, plugin, container."""
    await_so(lambda: stage.gpus(MACHINE) == (8, 8), "all GPUs of the node")
    spec = gpu_pod("any", 4)["spec"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"template": {"spec": spec}},
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    pods = "/api/v1/namespaces/default/pods?labelSelector=job-name=train"
    await_so(lambda: bool(stage.get(pods)["items"]), "the Job's pod")
    (pod,) = stage.get(pods)["items"]
    assert pod["spec"]["schedulerName"] == "coterie-scheduler"
    process = stage.process(pod["metadata"]["name"])
    assert len(process.devices) == 4
    assert process.devices == tuple(stage.plan(pod["metadata"]["name"]))
    stage.kubectl("delete", "job", "train")


def test_all_pods_are_as_secure_as_their_namespaces_want(stage):
    """No container was started again, and each has the account that the chart gives it."""
    found: dict[str, int] = {}
    for namespace in (SYSTEM, NODE):
        for pod in stage.get(f"/api/v1/namespaces/{namespace}/pods")["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                continue
            account = pod["spec"]["serviceAccountName"]
            found[account] = found.get(account, 0) + 1
            assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [
                0 for _ in pod["spec"]["containers"]
            ]
            assert pod["status"]["podIP"] != pod["status"]["hostIP"]
    assert found == {"coterie-scheduler": 2, "coterie-plugin": 1}


def test_one_of_the_two_schedulers_leads(stage):
    """They agree by a Lease, which their own role lets them write."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"

    def holder_is_a_pod():
        pods = stage.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
        holders = {
            one["spec"].get("holderIdentity", "").rpartition("_")[0]
            for one in stage.get(path)["items"]
            if one["metadata"]["name"] == "coterie-scheduler"
        }
        return len(holders) == 1 and holders <= {one["metadata"]["name"] for one in pods}

    await_so(holder_is_a_pod, "a scheduler that holds the Lease")


def test_the_node_says_what_it_has(stage):
    """Written by the plugin's own token, which names its node, below the policies."""

    def keys():
        return stage.get("/api/v1/nodes/node-0")["metadata"].get("annotations", {}).keys()

    await_so(lambda: keys() >= {names.TOPOLOGY, names.DEVICES}, "annotations of the Node")


def test_kubectl_coterie_answers_the_admin(stage):
    """Of two schedulers' extenders the one that leads knows the pods that wait."""
    stage.start("placed", 2)
    stage.pods.create(pod_that_waits("waits"))
    admin_sees_everything(stage, placed="placed", waits="waits")
    stage.pods.delete("placed", "waits")


def test_kubectl_coterie_needs_the_readers_role_alone(stage):
    """No right in the cluster, and none in any other namespace."""
    reader_sees_the_extender(stage, namespace=SYSTEM)


def checkpoint(stage):
    """The devices that the kubelet has noted."""
    noted = json.loads(stage.nodes[MACHINE].checkpoint.read_text(encoding="utf-8"))
    entries = noted["Data"]["PodDeviceEntries"] or []
    return {one for entry in entries for ids in entry["DeviceIDs"].values() for one in ids}


def keys_of_node(stage):
    """Coterie's on the Node."""
    return OURS & stage.get(f"/api/v1/nodes/{MACHINE}")["metadata"].get("annotations", {}).keys()


def test_what_a_removal_takes_and_what_it_leaves(stage):
    """docs/operator-guide.md, "Remove": the order, and rows of its table; then all is back."""
    running = stage.start("running", 4)
    plan = stage.plan("running")
    stage.pods.create(gpu_pod("waiting", 8))
    stage.pods.until("waiting", lambda pod: bool(pod["status"].get("conditions")))
    made = stage.folder / "dist" / "manifests"
    made.mkdir(parents=True)
    for name in (WAY, "scheduler-name", "scheduler-name-required"):
        (made / f"{name}.yaml").write_text(stage.manifest(name), encoding="utf-8")
    assert keys_of_node(stage) == OURS
    with stage.timed("clean"):
        run_documented(stage, stage.folder, documented(GUIDE, "patch daemonset coterie-plugin"))
        stage.rolled_out(PLUGIN, NODE)
    log = stage.kubectl(
        *("logs", "-n", NODE, "-l", "app.kubernetes.io/name=coterie-plugin", "--tail=-1")
    )
    removed = {line for line in log.splitlines() if line.startswith("removed annotation")}
    assert removed == {f"removed annotation {one} of node {MACHINE}" for one in OURS}
    with stage.timed("delete"):
        run_documented(stage, stage.folder, documented(GUIDE, "delete --ignore-not-found -f dist"))

    assert keys_of_node(stage) == set()
    await_so(lambda: stage.gpus(MACHINE) == (8, 0), "GPUs without a plugin")
    assert list(stage.nodes[MACHINE].device_plugins.glob("*coterie*")) == []
    assert list(stage.nodes[MACHINE].cdi.glob("k8s.device-plugin.nvidia.com-*")) == []
    # A pod that ended just before the allocation may stand there still.
    assert checkpoint(stage) >= set(running.devices)
    assert stage.process("running") == running
    assert stage.plan("running") == plan
    waiting = stage.pods.get("waiting")
    assert (waiting["status"]["phase"], waiting["spec"]["schedulerName"]) == (
        "Pending",
        "coterie-scheduler",
    )
    kinds = stage.kubectl("api-resources", "--verbs=list", "--output=name").split()
    listed = ",".join(one for one in kinds if not one.startswith("events"))
    found = stage.kubectl("get", listed, "--all-namespaces", "--output=name").splitlines()
    assert [one for one in found if "coterie" in one] == []
    labels = stage.get(f"/api/v1/nodes/{MACHINE}")["metadata"]["labels"]
    assert [one for one in labels if one.startswith(names.PREFIX)] == [SIMULATED]
    stage.pods.clear()
    install(stage)
