"""deploy/second-scheduler and deploy/plugin-simulated as a reader applies them by kubectl.

Programs run in their images as pods, with the accounts, rights and policies of deploy/, in networks
of their own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.control.manifests import await_so, send_gpu_pods
from tests.cluster.install.stage import InstallStage, gpu_pod
from topology.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.install.images import Images
    from tests.cluster.install.stage import InstallTools

pytestmark = [pytest.mark.cluster, pytest.mark.kubelet, pytest.mark.install]

SYSTEM, NODE = "coterie-system", "coterie-node"


@pytest.fixture(scope="module")
def stage(
    install_tools: InstallTools, install_images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstallStage]:
    """The way, installed, and all GPU pods sent there."""
    with InstallStage(install_tools, install_images, tmp_path_factory.mktemp("install")) as running:
        with running.timed("install"):
            folder = running.kustomization("second-scheduler", "plugin-simulated")
            running.kubectl("apply", "-k", str(folder))
            running.rolled_out("daemonset/coterie-plugin", NODE)
            running.rolled_out("deployment/coterie-scheduler", SYSTEM)
        send_gpu_pods(running.control_plane)
        yield running


@pytest.mark.slow("image layers are unpacked for each container")
def test_a_jobs_container_has_what_was_planned(stage):
    """The whole way: policy, scheduler, extender, plan, kubelet, plugin, container."""
    assert stage.gpus("node-0") == (8, 8)
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
            account = pod["spec"]["serviceAccountName"]
            found[account] = found.get(account, 0) + 1
            assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [
                0 for _ in pod["spec"]["containers"]
            ]
            assert pod["status"]["podIP"] != pod["status"]["hostIP"]
    assert found == {"coterie-scheduler": 2, "coterie-plugin": 1}


def test_one_of_the_two_schedulers_leads(stage):
    """They agree by a Lease, which their own role lets them write."""
    lease = stage.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/coterie-scheduler")
    pods = {
        one["metadata"]["name"] for one in stage.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
    }
    assert lease["spec"]["holderIdentity"].rpartition("_")[0] in pods


def test_the_node_says_what_it_has(stage):
    """Written by the agent's own token, which names its node, below the policies."""
    node = stage.get("/api/v1/nodes/node-0")
    assert node["metadata"]["annotations"].keys() >= {names.TOPOLOGY, names.DEVICES}
