"""deploy/second-scheduler and deploy/plugin-simulated as a reader applies them by kubectl.

Programs run in their images as pods, with the accounts, rights and policies of deploy/, in networks
of their own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.control.control_plane import CommandFailed
from tests.cluster.control.manifests import await_so, send_gpu_pods
from tests.cluster.install.stage import InstallStage, gpu_pod
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

SYSTEM, NODE = "coterie-system", "coterie-node"
AGENT, SCHEDULER = "daemonset/coterie-plugin", "deployment/coterie-scheduler"


@pytest.fixture(scope="module")
def stage(
    install_tools: InstallTools, install_images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallStage]:
    """The way, installed, and all GPU pods sent there."""
    with InstallStage(install_tools, install_images, tmp_path_factory.mktemp("install")) as running:
        with running.timed("install"):
            install(running)
        send_gpu_pods(running.control_plane)
        yield running


def install(stage, tag=None):
    """Apply all, and wait until it runs."""
    folder = stage.kustomization("second-scheduler", "plugin-simulated", tag=tag)
    stage.kubectl("apply", "-k", str(folder))
    roll_out(stage)


def roll_out(stage):
    """Wait until all pods are new and Ready."""
    stage.rolled_out(AGENT, NODE)
    stage.rolled_out(SCHEDULER, SYSTEM)


def tags(stage, *namespaces):
    """The tags of Coterie's images that run, of all containers of these namespaces, or both."""
    found = set()
    for namespace in namespaces or (SYSTEM, NODE):
        for pod in stage.get(f"/api/v1/namespaces/{namespace}/pods")["items"]:
            if "deletionTimestamp" not in pod["metadata"]:
                images = [one["image"] for one in pod["spec"]["containers"]]
                found |= {one.partition(":")[2] for one in images if "/coterie/" in one}
    return found


def test_a_jobs_container_has_what_was_planned(stage):
    """The whole way: policy, scheduler, extender, plan, kubelet, plugin, container."""
    await_so(lambda: stage.gpus("node-0") == (8, 8), "all GPUs of the node")
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
    """No container was started again, and each has the account that deploy/ gives it."""
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
    """Written by the agent's own token, which names its node, below the policies."""

    def keys():
        return stage.get("/api/v1/nodes/node-0")["metadata"].get("annotations", {}).keys()

    await_so(lambda: keys() >= {names.TOPOLOGY, names.DEVICES}, "annotations of the Node")


def test_upgrade_and_rollback_leave_gpu_pods_alone(stage):
    """Their containers keep process and devices, and new pods get what these do not hold."""
    first = stage.start("first", 4)
    (before,) = tags(stage)
    stage.tag_images("next")
    with stage.timed("upgrade"):
        install(stage, tag="next")
    await_so(lambda: tags(stage) == {"next"}, "the new version alone")
    await_so(lambda: stage.gpus("node-0") == (8, 8), "all GPUs")
    second = stage.start("second", 2)
    assert second.devices == tuple(stage.plan("second"))
    assert not set(second.devices) & set(first.devices)

    for folder in ("second-scheduler", "plugin-simulated"):
        stage.kubectl("apply", "-k", str(stage.kustomization(folder, tag="missing")))
    with pytest.raises(CommandFailed, match="timed out"):
        stage.rolled_out(AGENT, NODE, within_s=3)
    await_so(lambda: all("missing" in tags(stage, one) for one in (SYSTEM, NODE)), "new pods")
    with stage.timed("rollback"):
        stage.kubectl("rollout", "undo", AGENT, "-n", NODE)
        stage.kubectl("rollout", "undo", SCHEDULER, "-n", SYSTEM)
        roll_out(stage)
    await_so(lambda: tags(stage) == {"next"} != {before}, "the version before")
    await_so(lambda: stage.gpus("node-0") == (8, 8), "all GPUs")
    third = stage.start("third", 2)
    assert third.devices == tuple(stage.plan("third"))
    assert len({*first.devices, *second.devices, *third.devices}) == 8
    assert [stage.process(one) for one in ("first", "second")] == [first, second]
    stage.pods.clear()


def test_kubectl_coterie_answers_the_admin(stage):
    """Of two schedulers' extenders the one that leads knows the pods that wait."""
    stage.start("placed", 2)
    stage.pods.create(pod_that_waits("waits"))
    admin_sees_everything(stage, placed="placed", waits="waits")
    stage.pods.delete("placed", "waits")


def test_kubectl_coterie_needs_the_readers_role_alone(stage):
    """No right in the cluster, and none in any other namespace."""
    reader_sees_the_extender(stage, namespace=SYSTEM)
